// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/admit/always.hpp>
#include <terrace/concepts/admission_policy.hpp>
#include <terrace/concepts/copy_path.hpp>
#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/concepts/home.hpp>
#include <terrace/concepts/memory_tier.hpp>

#include <cstddef>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

namespace terrace {

inline constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// One cache level: the memory, who leaves it when it is full, and (below the fastest level) who
/// may enter. A level is inclusive: a block that is also in a faster level stays here, so evicting
/// it there is dropping it.
template <memory_tier Tier, eviction_policy Evict, admission_policy Admit = admit::always>
struct level {
  using tier = Tier;
  static constexpr bool is_exclusive = false;

  Tier memory;
  Evict evict;
  Admit admit{};
  std::size_t expert_slots =
      unlimited;  ///< most expert blocks at once, beside the memory's own capacity
};

/// A level that holds only what the level above does not: what is evicted there is demoted here,
/// what is promoted from here leaves. The two levels together then hold more distinct blocks, for
/// the price of a copy on each eviction.
template <class Level>
struct exclusive : Level {
  static constexpr bool is_exclusive = true;
};

/// The last level of every chain.
template <home_tier Home>
struct home {
  using tier = Home;
  Home source;
};

namespace detail {

template <class T>
struct is_home : std::false_type {};
template <class Home>
struct is_home<home<Home>> : std::true_type {};

template <class... Parts>
using last_of = std::tuple_element_t<sizeof...(Parts) - 1, std::tuple<Parts...>>;

/// A level below another one must be reachable both ways: filled or demoted from above, promoted to
/// above.
template <class Upper, class Lower>
concept linked = copyable_to<typename Upper::tier, typename Lower::tier> &&
                 copyable_to<typename Lower::tier, typename Upper::tier>;

template <class Home, class Levels, class Indices>
struct chain_rules;
template <class Home, class... Levels, std::size_t... I>
struct chain_rules<Home, std::tuple<Levels...>, std::index_sequence<I...>> {
  using tuple = std::tuple<Levels...>;
  static constexpr bool paths_from_home =
      (copyable_to<typename Home::tier, typename Levels::tier> && ...);
  static constexpr bool fastest_is_readable =
      std::tuple_element_t<0, tuple>::tier::traits.host_readable ||
      std::tuple_element_t<0, tuple>::tier::traits.device_readable;
  static constexpr bool fastest_is_inclusive = !std::tuple_element_t<0, tuple>::is_exclusive;
  template <std::size_t Lower>
  static constexpr bool linked_to_above =
      linked<std::tuple_element_t<Lower == 0 ? 0 : Lower - 1, tuple>,
             std::tuple_element_t<Lower, tuple>>;
  static constexpr bool neighbours_linked = ((I == 0 || linked_to_above<I>)&&...);
};

}  // namespace detail

/// Memory tiers from fast to home with the policy of each level, as one type. Sizes and paths are
/// values:
///
///   tier_chain chain{level<dram, evict::lru>{dram{8 * gib}, evict::lru{{}}},
///   home<nvme>{nvme{files}}};
///
/// What cannot work does not compile, with a sentence that says why.
template <class... Parts>
class tier_chain {
  static_assert(sizeof...(Parts) >= 2, "tier_chain: needs at least one level and a home");
  static_assert(detail::is_home<detail::last_of<Parts...>>::value,
                "tier_chain: the last part must be home<...>, the tier that holds every block");
  template <class>
  struct split;
  template <std::size_t... I>
  struct split<std::index_sequence<I...>> {
    using levels = std::tuple<std::tuple_element_t<I, std::tuple<Parts...>>...>;
    static constexpr bool no_inner_home =
        (!detail::is_home<std::tuple_element_t<I, std::tuple<Parts...>>>::value && ...);
  };
  using parts = split<std::make_index_sequence<sizeof...(Parts) - 1>>;
  static_assert(parts::no_inner_home, "tier_chain: only the last part may be home<...>");

 public:
  using levels_tuple = typename parts::levels;
  using home_part = detail::last_of<Parts...>;
  static constexpr std::size_t level_count = sizeof...(Parts) - 1;

 private:
  using rules = detail::chain_rules<home_part, levels_tuple, std::make_index_sequence<level_count>>;
  static_assert(rules::paths_from_home,
                "tier_chain: a level has no copy_path from home; see terrace/copy/");
  static_assert(
      rules::fastest_is_readable,
      "tier_chain: kernels cannot read the fastest level; it is neither host nor device readable");
  static_assert(rules::fastest_is_inclusive,
                "tier_chain: the fastest level cannot be exclusive; there is no level above it");
  static_assert(
      rules::neighbours_linked,
      "tier_chain: two neighbouring levels lack a copy_path in one direction; see terrace/copy/");

 public:
  explicit tier_chain(Parts... part)
      : tier_chain{std::tuple<Parts...>{std::move(part)...}, indices{}} {}

  [[nodiscard]] levels_tuple& levels() noexcept { return levels_; }
  [[nodiscard]] levels_tuple const& levels() const noexcept { return levels_; }
  [[nodiscard]] typename home_part::tier& home_source() noexcept { return home_.source; }
  [[nodiscard]] typename home_part::tier const& home_source() const noexcept {
    return home_.source;
  }

 private:
  using indices = std::make_index_sequence<level_count>;
  template <std::size_t... I>
  tier_chain(std::tuple<Parts...>&& all, std::index_sequence<I...>)
      : levels_{std::move(std::get<I>(all))...}, home_{std::move(std::get<level_count>(all))} {}

  levels_tuple levels_;
  home_part home_;
};

}  // namespace terrace
