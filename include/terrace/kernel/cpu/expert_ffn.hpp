// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/activations.hpp>
#include <terrace/kernel/cpu/detail/multiply_rows.hpp>
#include <terrace/kernel/cpu/elementwise.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::kernel::cpu {

/// One expert and the tokens that chose it.
struct expert_task {
  matrix_view gate, up;                   ///< [d_ff, d_model]
  matrix_view down;                       ///< [d_model, d_ff]
  std::span<std::uint32_t const> tokens;  ///< rows of the activations
  float* out;  ///< [tokens.size(), d_model], overwritten: the output before its router weight
};

/// Memory of `expert_ffn`, kept between calls.
class ffn_scratch {
 public:
  struct expert {
    std::vector<float> gate, up;  ///< [tokens, d_ff]
    detail::int8_panels input;
    activations hidden;
  };
  /// Buffers for `count` experts; those of earlier calls stay allocated.
  [[nodiscard]] std::span<expert> reserve(std::size_t count) {
    if (experts_.size() < count) { experts_.resize(count); }
    return {experts_.data(), count};
  }

 private:
  std::vector<expert> experts_;
};

namespace detail {

/// Runs body(task, begin, end) on the pool so that all tasks' rows, weighed by their tokens, are
/// shared evenly. Bounds are multiples of 16 rows.
template <class Rows, class Body>
void for_task_rows(thread_pool& pool,
                   std::span<expert_task const> tasks,
                   Rows&& rows_of,
                   Body&& body) {
  auto const cost = [&](expert_task const& task) {
    return rows_of(task) * (4 + task.tokens.size());
  };
  std::size_t total = 0;
  for (auto const& task : tasks) { total += cost(task); }
  pool.run([&](int thread) {
    auto const t = static_cast<std::size_t>(thread);
    auto const threads = static_cast<std::size_t>(pool.size());
    std::size_t const from = total * t / threads;
    std::size_t const to = total * (t + 1) / threads;
    std::size_t start = 0;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      std::size_t const rows = rows_of(tasks[i]);
      std::size_t const row_cost = 4 + tasks[i].tokens.size();
      auto const bound = [&](std::size_t at) {
        if (at <= start) { return std::size_t{0}; }
        std::size_t const whole = (at - start) / row_cost;
        return whole >= rows ? rows : whole / 16 * 16;
      };
      std::size_t const begin = bound(from);
      std::size_t const end = bound(to);
      if (begin < end) { body(i, begin, end, workspace{&pool, thread}); }
      start += cost(tasks[i]);
    }
  });
}

/// Packs the tokens of tasks that have enough of them for panels.
inline void pack_inputs(thread_pool& pool,
                        activations const& x,
                        std::span<expert_task const> tasks,
                        std::span<ffn_scratch::expert> experts) {
  if (!x.has_codes()) { return; }
  std::vector<std::pair<std::size_t, std::size_t>> panels;  // task, number
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    std::size_t const count = panels_for(tasks[i].tokens.size());
    if (count != 0) { experts[i].input.resize(count, x.codes().blocks); }
    for (std::size_t p = 0; p < count; ++p) { panels.emplace_back(i, p); }
  }
  pool.for_range(panels.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t item = begin; item < end; ++item) {
      auto const [i, p] = panels[item];
      auto const list = tasks[i].tokens.subspan(p * panel_tokens);
      experts[i].input.pack(p, x.codes(), list.size(), [&](std::size_t t) { return list[t]; });
    }
  });
}

inline void check_expert(expert_task const& task, activations const& x) {
  check_matrix(task.gate, x.cols());
  check_matrix(task.up, x.cols());
  check_matrix(task.down, task.gate.rows);
  if (task.up.rows != task.gate.rows) {
    throw contract_error{"an expert's gate has " + std::to_string(task.gate.rows) +
                         " rows, its up matrix " + std::to_string(task.up.rows)};
  }
  for (auto const token : task.tokens) {
    if (token >= x.tokens()) {
      throw contract_error{"token " + std::to_string(token) + " of an expert is not among the " +
                           std::to_string(x.tokens()) + " given"};
    }
  }
}

}  // namespace detail

/// out = down(activation(gate x, up x)) for each task, with the bits of `matmul`, `activate`,
/// `activations::assign` and `matmul` in that order.
///
/// Errors: contract_error when shapes disagree or a token does not exist.
/// Cost:   reads every task's weights once; a few barriers, one more for each task with several tokens.
inline void expert_ffn(thread_pool& pool,
                       activations const& x,
                       std::span<expert_task const> tasks,
                       ffn_scratch& scratch,
                       gated_activation const& activation = {}) {
  auto const experts = scratch.reserve(tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    detail::check_expert(tasks[i], x);
    std::size_t const values = tasks[i].tokens.size() * tasks[i].gate.rows;
    if (experts[i].gate.size() < values) {
      experts[i].gate.resize(values);
      experts[i].up.resize(values);
    }
  }
  detail::pack_inputs(pool, x, tasks, experts);
  detail::for_task_rows(
      pool,
      tasks,
      [](expert_task const& task) { return std::size_t{task.gate.rows}; },
      [&](std::size_t i, std::size_t begin, std::size_t end, detail::workspace memory) {
        expert_task const& task = tasks[i];
        std::size_t const d_ff = task.gate.rows;
        detail::token_set const set{&x, task.tokens.data(), task.tokens.size(), &experts[i].input};
        float* const gate = experts[i].gate.data();
        float* const up = experts[i].up.data();
        detail::multiply_rows(task.gate, set, {gate, d_ff, begin, end}, memory);
        detail::multiply_rows(task.up, set, {up, d_ff, begin, end}, memory);
        for (std::size_t t = 0; t < task.tokens.size(); ++t) {
          std::size_t const at = t * d_ff + begin;
          detail::activate_values(activation, gate + at, up + at, end - begin, gate + at);
        }
      });
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    experts[i].hidden.assign(pool,
                             x.mode(),
                             experts[i].gate.data(),
                             tasks[i].tokens.size(),
                             tasks[i].gate.rows,
                             tasks[i].gate.rows);
  }
  detail::for_task_rows(
      pool,
      tasks,
      [](expert_task const& task) { return std::size_t{task.down.rows}; },
      [&](std::size_t i, std::size_t begin, std::size_t end, detail::workspace memory) {
        detail::token_set const set = detail::all_tokens(experts[i].hidden);
        detail::multiply_rows(
            tasks[i].down, set, {tasks[i].out, tasks[i].down.rows, begin, end}, memory);
      });
}

}  // namespace terrace::kernel::cpu
