// SPDX-License-Identifier: Apache-2.0
#pragma once

/// All kernels of the CPU backend.

#include <terrace/kernel/cpu/activations.hpp>
#include <terrace/kernel/cpu/attention.hpp>
#include <terrace/kernel/cpu/elementwise.hpp>
#include <terrace/kernel/cpu/expert_ffn.hpp>
#include <terrace/kernel/cpu/kda.hpp>
#include <terrace/kernel/cpu/kv_cache.hpp>
#include <terrace/kernel/cpu/matmul.hpp>
#include <terrace/kernel/cpu/norm.hpp>
#include <terrace/kernel/cpu/residual_bank.hpp>
#include <terrace/kernel/cpu/rope.hpp>
#include <terrace/kernel/cpu/route.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>
