// SPDX-License-Identifier: Apache-2.0
#include <terrace/kernel/cuda/kv_cache.cuh>
