// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/detail/attend_chunk.hpp>
#include <terrace/kernel/cpu/kv_cache.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace terrace::kernel::cpu {

namespace detail {

/// Some heads of one token that share a key head: the piece of work that keys are read for.
struct head_run {
  std::size_t first_head;  ///< of token * heads + head
  std::size_t count;
  std::size_t kv_head;
  std::size_t positions;  ///< the token sees

  [[nodiscard]] std::size_t chunks() const noexcept {
    return (positions + chunk_positions - 1) / chunk_positions;
  }
};

/// One attention call, cut into runs of at most `most_heads` heads.
class attention_work {
 public:
  attention_work(attention_shape const& shape,
                 float const* q,
                 kv_pages const& cache,
                 float* out) noexcept
      : shape_{shape},
        q_{q},
        cache_{cache},
        out_{out},
        group_{shape.heads / shape.kv_heads},
        group_runs_{(group_ + most_heads - 1) / most_heads} {}

  [[nodiscard]] std::size_t runs() const noexcept {
    return shape_.tokens * shape_.kv_heads * group_runs_;
  }
  [[nodiscard]] head_run run(std::size_t i) const noexcept {
    std::size_t const token = i / (shape_.kv_heads * group_runs_);
    std::size_t const kv_head = i / group_runs_ % shape_.kv_heads;
    std::size_t const first = i % group_runs_ * most_heads;
    return {token * shape_.heads + kv_head * group_ + first,
            std::min(most_heads, group_ - first),
            kv_head,
            shape_.first_position + token + 1};
  }

  /// Chunk `chunk` of a run; states [count], values [count, d_v].
  void attend(head_run const& run,
              std::size_t chunk,
              softmax_state* states,
              float* values) const noexcept {
    std::size_t const first = chunk * chunk_positions;
    chunk_rows const rows{
        cache_, run.kv_head, first, std::min(chunk_positions, run.positions - first)};
    attend_chunk(shape_,
                 q_ + run.first_head * shape_.d_k,
                 cache_.layout.half,
                 run.count,
                 rows,
                 states,
                 values);
  }

  /// All chunks of a run, one after the other; values [most_heads, d_v] is scratch.
  void attend(head_run const& run, float* values) const noexcept {
    softmax_state running[most_heads];
    softmax_state next[most_heads];
    float* const out = out_ + run.first_head * shape_.d_v;
    attend(run, 0, running, out);
    for (std::size_t chunk = 1; chunk < run.chunks(); ++chunk) {
      attend(run, chunk, next, values);
      for (std::size_t h = 0; h < run.count; ++h) {
        merge_chunk(running[h], out + h * shape_.d_v, next[h], values + h * shape_.d_v, shape_.d_v);
      }
    }
    for (std::size_t h = 0; h < run.count; ++h) {
      finish(running[h], out + h * shape_.d_v, shape_.d_v);
    }
  }

  /// Joins chunks of head `h` of a run that were computed apart: states [chunks, most_heads],
  /// values [chunks, most_heads, d_v].
  void join(head_run const& run,
            std::size_t h,
            softmax_state const* states,
            float const* values) const noexcept {
    std::size_t const d_v = shape_.d_v;
    float* const out = out_ + (run.first_head + h) * d_v;
    softmax_state running = states[h];
    std::copy_n(values + h * d_v, d_v, out);
    for (std::size_t chunk = 1; chunk < run.chunks(); ++chunk) {
      std::size_t const at = chunk * most_heads + h;
      merge_chunk(running, out, states[at], values + at * d_v, d_v);
    }
    finish(running, out, d_v);
  }

 private:
  attention_shape const& shape_;
  float const* q_;
  kv_pages const& cache_;
  float* out_;
  std::size_t group_;
  std::size_t group_runs_;
};

/// Enough runs for every thread: each is computed whole. Runs are dealt in turn because later
/// tokens see more.
inline void attend_runs(thread_pool& pool, attention_work const& work, std::size_t d_v) {
  pool.run([&](int thread) {
    auto* const values =
        reinterpret_cast<float*>(pool.scratch(thread, most_heads * d_v * sizeof(float)));
    auto const step = static_cast<std::size_t>(pool.size());
    for (auto i = static_cast<std::size_t>(thread); i < work.runs(); i += step) {
      work.attend(work.run(i), values);
    }
  });
}

/// Whether threads would idle if runs were not split, and the parts fit in memory that is worth
/// keeping.
inline bool worth_splitting(attention_work const& work, std::size_t d_v, int threads) noexcept {
  constexpr std::size_t most_bytes = 64U << 20U;
  std::size_t const runs = work.runs();
  std::size_t const chunks = work.run(runs - 1).chunks();
  return chunks > 1 && runs < 8 * static_cast<std::size_t>(threads) &&
         runs * chunks * most_heads * d_v * sizeof(float) <= most_bytes;
}

/// Few runs, as when one token is generated: their chunks are computed apart, then joined.
inline void attend_chunks(thread_pool& pool, attention_work const& work, std::size_t d_v) {
  std::size_t const runs = work.runs();
  std::size_t const chunks = work.run(runs - 1).chunks();  // the last token sees most
  std::size_t const slots = runs * chunks * most_heads;
  auto* const states = reinterpret_cast<softmax_state*>(
      pool.shared_scratch(slots * (sizeof(softmax_state) + d_v * sizeof(float))));
  auto* const values = reinterpret_cast<float*>(states + slots);
  pool.for_range(runs * chunks, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      head_run const run = work.run(i / chunks);
      if (i % chunks < run.chunks()) {
        work.attend(run, i % chunks, states + i * most_heads, values + i * most_heads * d_v);
      }
    }
  });
  std::size_t const grain = std::max<std::size_t>(1, 16384 / (chunks * d_v));
  pool.for_range(runs * most_heads, grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      head_run const run = work.run(i / most_heads);
      std::size_t const at = i / most_heads * chunks * most_heads;
      if (i % most_heads < run.count) {
        work.join(run, i % most_heads, states + at, values + at * d_v);
      }
    }
  });
}

}  // namespace detail

/// Causal attention: out = softmax(scale * q . k) v, token t over positions 0 to first_position +
/// t, which must be in the cache already. Each (token, head) has the same bits whatever else is in
/// the call.
///
/// Shapes: q [tokens, heads, d_k], out [tokens, heads, d_v].
/// Errors: contract_error when heads is no multiple of kv_heads or a page is missing.
/// Cost:   keys and values are read once for up to four heads of a token that share them; one barrier, or two for few
///         tokens.
inline void attention(thread_pool& pool,
                      attention_shape const& shape,
                      float const* q,
                      kv_pages const& cache,
                      float* out) {
  if (shape.kv_heads == 0 || shape.heads == 0 || shape.heads % shape.kv_heads != 0) {
    throw contract_error{std::to_string(shape.heads) + " query heads cannot share " +
                         std::to_string(shape.kv_heads) + " key heads evenly"};
  }
  cache.require(shape.first_position + shape.tokens);
  if (shape.tokens == 0) { return; }
  detail::attention_work const work{shape, q, cache, out};
  if (detail::worth_splitting(work, shape.d_v, pool.size())) {
    detail::attend_chunks(pool, work, shape.d_v);
  } else {
    detail::attend_runs(pool, work, shape.d_v);
  }
}

}  // namespace terrace::kernel::cpu
