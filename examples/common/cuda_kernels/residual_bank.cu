// SPDX-License-Identifier: Apache-2.0
#include <terrace/kernel/cuda/residual_bank.cuh>
