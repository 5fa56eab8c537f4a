// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace terrace {

/// How bytes move between two named tiers; specialised in terrace/copy/, one file per pair.
///
/// From a home:       static ticket start(Home&, std::span<block_extent const>, To&, typename
/// To::handle); Between levels:    static ticket start(From&, typename From::handle, To&, typename
/// To::handle, std::size_t bytes);
///
/// Both return before the copy is done; source and destination stay put until the ticket ends.
template <class From, class To>
struct copy_path;

template <class From, class To>
concept copyable_to = requires { &copy_path<From, To>::start; };

}  // namespace terrace
