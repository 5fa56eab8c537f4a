// SPDX-License-Identifier: Apache-2.0
#include <terrace/kernel/cuda/kda.cuh>
