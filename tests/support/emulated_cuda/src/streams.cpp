// SPDX-License-Identifier: Apache-2.0
// Streams are threads with a queue; a capture keeps what would have been queued, in the order of
// the calls.
#include "machine.hpp"

#include <cuda_runtime.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

using emulated_cuda::machine;
using work = std::function<void()>;

namespace {

struct moment {
  std::mutex mutex;
  std::condition_variable changed;
  bool passed = false;
  int device = 0;
  std::chrono::steady_clock::time_point at;

  void pass() {
    {
      std::lock_guard const lock{mutex};
      passed = true;
      at = std::chrono::steady_clock::now();
    }
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock{mutex};
    changed.wait(lock, [&] { return passed; });
  }
  [[nodiscard]] bool is_past() {
    std::lock_guard const lock{mutex};
    return passed;
  }
};

struct capture {
  std::vector<work> steps;
  CUstream_st* origin = nullptr;
  std::map<CUstream_st*, std::size_t> added;   ///< steps by stream
  std::map<CUstream_st*, std::size_t> joined;  ///< of them, those that another stream waits for
  bool global = false;
  bool broken = false;
};

}  // namespace

struct CUstream_st {
  int device = 0;
  bool blocking = true;  ///< waits for the legacy stream and the legacy stream for it
  std::shared_ptr<capture> recording;

  void push(work step) {
    std::lock_guard const lock{mutex_};
    if (!thread_.joinable()) {
      thread_ = std::thread{[this] { live(); }};
    }
    queue_.push_back(std::move(step));
    ++pending_;
    changed_.notify_all();
  }
  void drain() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return pending_ == 0; });
  }
  [[nodiscard]] bool idle() {
    std::lock_guard const lock{mutex_};
    return pending_ == 0;
  }
  ~CUstream_st() {
    {
      std::lock_guard const lock{mutex_};
      ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) { thread_.join(); }
  }

 private:
  void live() {
    for (;;) {
      work step;
      {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
        if (queue_.empty()) { return; }
        step = std::move(queue_.front());
        queue_.pop_front();
      }
      step();
      step = nullptr;
      {
        std::lock_guard const lock{mutex_};
        --pending_;
      }
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<work> queue_;
  std::size_t pending_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<moment> last;
  std::shared_ptr<capture> recording;
  CUstream_st* stream = nullptr;
  std::size_t steps = 0;
  bool timed = true;
};
struct CUgraph_st {
  std::vector<work> steps;
};
struct CUgraphExec_st {
  std::shared_ptr<std::vector<work> const> steps;
  int device = 0;
};

namespace {

using namespace emulated_cuda;

struct stream_list {
  std::mutex mutex;
  std::set<CUstream_st*> all;
  CUstream_st* legacy[most_devices] = {};
};
stream_list& streams() {
  static stream_list* const it = new stream_list;
  return *it;
}
std::vector<CUstream_st*> streams_of(int device, bool blocking_only) {
  std::lock_guard const lock{streams().mutex};
  std::vector<CUstream_st*> found;
  for (auto* const one : streams().all) {
    if (one->device == device && (!blocking_only || one->blocking)) { found.push_back(one); }
  }
  return found;
}
CUstream_st* legacy_stream(int device) {
  std::lock_guard const lock{streams().mutex};
  auto& slot = streams().legacy[device];
  if (slot == nullptr) {
    slot = new CUstream_st;
    slot->device = device;
  }
  return slot;
}
bool is_known(cudaStream_t stream) {
  std::lock_guard const lock{streams().mutex};
  return stream == nullptr || streams().all.contains(stream);
}
bool failed(int device) {
  return the_machine().devices[static_cast<std::size_t>(device)].failure != cudaSuccess;
}

/// Runs one step on its stream; after a failure the device does nothing any more.
void perform(int device, work const& step) {
  if (failed(device)) { return; }
  try {
    step();
  } catch (std::exception const& problem) {
    fail_device(device, cudaErrorLaunchFailure, problem.what());
  }
}

/// Queues or captures. `later` is a failure arranged for this step.
cudaError_t submit(cudaStream_t on, work step, cudaError_t later = cudaSuccess) {
  if (!is_known(on)) { return cudaErrorInvalidResourceHandle; }
  int const device = on != nullptr ? on->device : current_device();
  if (cudaError_t const code = standing_error(device); code != cudaSuccess) { return code; }
  if (later != cudaSuccess) {
    step = [device, later] { fail_device(device, later, "a failure that the test arranged"); };
  }
  if (on == nullptr) {
    CUstream_st* const legacy = legacy_stream(device);
    for (auto* const other : streams_of(device, true)) { other->drain(); }
    legacy->push([device, step] { perform(device, step); });
    legacy->drain();
    return cudaSuccess;
  }
  if (auto const recording = on->recording) {
    if (recording->broken) { return cudaErrorStreamCaptureInvalidated; }
    recording->steps.push_back(std::move(step));
    ++recording->added[on];
    return cudaSuccess;
  }
  on->push([device, step = std::move(step)] { perform(device, step); });
  return cudaSuccess;
}

/// A call that would wait for a capturing stream ends the capture.
bool spoils_capture(cudaStream_t stream) {
  if (stream == nullptr || !stream->recording) { return false; }
  stream->recording->broken = true;
  return true;
}

/// Whether both ranges are what `kind` says and lie within their allocations.
cudaError_t check_copy(void const* to, void const* from, std::size_t bytes, cudaMemcpyKind& kind) {
  if (bytes == 0) { return cudaSuccess; }
  if (to == nullptr || from == nullptr) { return cudaErrorInvalidValue; }
  std::lock_guard const lock{the_machine().mutex};
  auto side = [&](void const* at, bool& device) {
    allocation const* const whole = find_allocation(at, bytes);
    allocation const* const start = find_allocation(at, 1);
    device = start != nullptr && start->type == cudaMemoryTypeDevice;
    return start == nullptr || whole != nullptr;
  };
  bool to_device = false;
  bool from_device = false;
  if (!side(to, to_device) || !side(from, from_device)) { return cudaErrorInvalidValue; }
  auto const is = [&](cudaMemcpyKind one) { return kind == one; };
  auto managed = [&](void const* at) {
    allocation const* const one = find_allocation(at, 1);
    return one != nullptr && one->type != cudaMemoryTypeDevice;
  };
  if (is(cudaMemcpyDefault)) {
    kind = to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                     : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
    return cudaSuccess;
  }
  bool const wants_to = is(cudaMemcpyHostToDevice) || is(cudaMemcpyDeviceToDevice);
  bool const wants_from = is(cudaMemcpyDeviceToHost) || is(cudaMemcpyDeviceToDevice);
  bool const right_to = wants_to ? to_device || managed(to) : !to_device;
  bool const right_from = wants_from ? from_device || managed(from) : !from_device;
  return right_to && right_from ? cudaSuccess : cudaErrorInvalidValue;
}

void book_copy(cudaMemcpyKind kind, std::size_t bytes) {
  std::lock_guard const lock{the_machine().mutex};
  the_machine().copied[static_cast<std::size_t>(kind)] += bytes;
}

std::mutex shared_limit_mutex;
std::map<void const*, std::size_t>& shared_limits() {
  static auto* const it = new std::map<void const*, std::size_t>;
  return *it;
}
std::size_t shared_limit_of(void const* kernel) {
  std::lock_guard const lock{shared_limit_mutex};
  auto const found = shared_limits().find(kernel);
  return found == shared_limits().end() ? std::size_t{48} << 10U : found->second;
}

}  // namespace

namespace emulated_cuda {

void wait_for_all_streams(int device) {
  for (auto* const one : streams_of(device, false)) { one->drain(); }
  legacy_stream(device)->drain();
}

cudaError_t launch(cudaLaunchConfig_t const& config,
                   void const* kernel,
                   std::function<void()> thread_body) {
  auto const& [grid, block, shared, on, attributes, attribute_count] = config;
  auto const threads = static_cast<std::uint64_t>(block.x) * block.y * block.z;
  bool const fits = threads > 0 && threads <= 1024 && block.z <= 64 && grid.x > 0 &&
                    grid.x <= 0x7fffffffU && grid.y > 0 && grid.y <= 65535 && grid.z > 0 &&
                    grid.z <= 65535;
  if (!fits) { return answer(cudaErrorInvalidConfiguration); }
  if (shared > shared_limit_of(kernel)) { return answer(cudaErrorInvalidValue); }
  auto const arranged = admit(call::launch);
  if (arranged.refused != cudaSuccess) { return answer(arranged.refused); }
  launch_dimensions const shape{grid, block, shared};
  return answer(submit(
      on, [shape, body = std::move(thread_body)] { run_blocks(shape, body); }, arranged.later));
}

void enqueue(cudaStream_t on, std::function<void()> step) {
  static_cast<void>(submit(on, std::move(step)));
}

cudaError_t copy_to_variable(
    void* variable, std::size_t room, void const* from, std::size_t bytes, cudaStream_t on) {
  if (bytes > room) { return answer(cudaErrorInvalidValue); }
  auto const arranged = admit(call::copy);
  if (arranged.refused != cudaSuccess) { return answer(arranged.refused); }
  return answer(submit(
      on, [=] { std::memcpy(variable, from, bytes); }, arranged.later));
}

}  // namespace emulated_cuda

cudaError_t cudaFuncSetAttribute(void const* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) { return cudaSuccess; }
  if (value < 0 || value > 227 << 10) { return answer(cudaErrorInvalidValue); }
  std::lock_guard const lock{shared_limit_mutex};
  shared_limits()[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void const* kernel) {
  *attributes = {0, 0, 0, 1024, 32, 90, 90, 0, static_cast<int>(shared_limit_of(kernel))};
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          void const*,
                                                          int block_size,
                                                          std::size_t) {
  if (block_size < 1 || block_size > 1024) { return answer(cudaErrorInvalidValue); }
  *blocks = 2048 / block_size > 32 ? 32 : 2048 / block_size;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (cudaError_t const code = standing_error(current_device()); code != cudaSuccess) {
    return answer(code);
  }
  wait_for_all_streams(current_device());
  return answer(standing_error(current_device()));
}
cudaError_t cudaDeviceReset() {
  wait_for_all_streams(current_device());
  the_machine().devices[static_cast<std::size_t>(current_device())].failure = cudaSuccess;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t on) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, on);
}
cudaError_t cudaMemcpy2DAsync(void* to,
                              std::size_t to_pitch,
                              void const* from,
                              std::size_t from_pitch,
                              std::size_t width,
                              std::size_t height,
                              cudaMemcpyKind kind,
                              cudaStream_t on) {
  if (cudaError_t const code =
          standing_error(on != nullptr && is_known(on) ? on->device : current_device());
      code != cudaSuccess) {
    return answer(code);
  }
  if (height == 0 || width == 0) { return cudaSuccess; }
  if (width > to_pitch || width > from_pitch) { return answer(cudaErrorInvalidValue); }
  cudaMemcpyKind other = kind;
  cudaError_t code = check_copy(to, from, width, kind);
  if (code == cudaSuccess) {
    code = check_copy(static_cast<std::byte*>(to) + to_pitch * (height - 1),
                      static_cast<std::byte const*>(from) + from_pitch * (height - 1),
                      width,
                      other);
  }
  if (code != cudaSuccess) { return answer(code); }
  auto const arranged = admit(call::copy);
  if (arranged.refused != cudaSuccess) { return answer(arranged.refused); }
  return answer(submit(
      on,
      [=] {
        for (std::size_t row = 0; row < height; ++row) {
          std::memmove(static_cast<std::byte*>(to) + row * to_pitch,
                       static_cast<std::byte const*>(from) + row * from_pitch,
                       width);
        }
        book_copy(kind, width * height);
      },
      arranged.later));
}
cudaError_t cudaMemcpyPeerAsync(
    void* to, int, void const* from, int, std::size_t bytes, cudaStream_t on) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, on);
}
cudaError_t cudaMemcpy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (the_machine().global_captures > 0) { return answer(cudaErrorStreamCaptureUnsupported); }
  cudaError_t const code = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return code != cudaSuccess ? code : answer(standing_error(current_device()));
}
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t on) {
  if (cudaError_t const code =
          standing_error(on != nullptr && is_known(on) ? on->device : current_device());
      code != cudaSuccess) {
    return answer(code);
  }
  {
    std::lock_guard const lock{the_machine().mutex};
    if (find_allocation(at, bytes) == nullptr) { return answer(cudaErrorInvalidValue); }
  }
  auto const arranged = admit(call::fill);
  if (arranged.refused != cudaSuccess) { return answer(arranged.refused); }
  return answer(submit(
      on, [=] { std::memset(at, value, bytes); }, arranged.later));
}
cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  cudaError_t const code = cudaMemsetAsync(at, value, bytes, nullptr);
  return code != cudaSuccess ? code : answer(standing_error(current_device()));
}
cudaError_t cudaFreeAsync(void* at, cudaStream_t on) {
  {
    std::lock_guard const lock{the_machine().mutex};
    allocation* const one = find_allocation(at, 0);
    if (one == nullptr || one->leaving) { return answer(cudaErrorInvalidValue); }
    if (one->pool != nullptr) { leave_pool(*one); }
  }
  return answer(submit(on, [at] { static_cast<void>(release(at)); }));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (cudaError_t const code = standing_error(current_device()); code != cudaSuccess) {
    return answer(code);
  }
  *stream = new CUstream_st;
  (*stream)->device = current_device();
  (*stream)->blocking = (flags & cudaStreamNonBlocking) == 0;
  std::lock_guard const lock{streams().mutex};
  streams().all.insert(*stream);
  ++the_machine().streams;
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr || !is_known(stream)) { return answer(cudaErrorInvalidResourceHandle); }
  stream->drain();
  {
    std::lock_guard const lock{streams().mutex};
    streams().all.erase(stream);
  }
  delete stream;
  --the_machine().streams;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!is_known(stream)) { return answer(cudaErrorInvalidResourceHandle); }
  int const device = stream != nullptr ? stream->device : current_device();
  if (cudaError_t const code = standing_error(device); code != cudaSuccess) { return answer(code); }
  if (spoils_capture(stream)) { return answer(cudaErrorStreamCaptureUnsupported); }
  if (stream == nullptr) {
    for (auto* const one : streams_of(device, true)) { one->drain(); }
    legacy_stream(device)->drain();
  } else {
    stream->drain();
  }
  return answer(standing_error(device));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!is_known(stream)) { return answer(cudaErrorInvalidResourceHandle); }
  int const device = stream != nullptr ? stream->device : current_device();
  if (cudaError_t const code = standing_error(device); code != cudaSuccess) { return answer(code); }
  if (spoils_capture(stream)) { return answer(cudaErrorStreamCaptureUnsupported); }
  bool const idle = stream != nullptr ? stream->idle() : legacy_stream(device)->idle();
  return idle ? answer(standing_error(device)) : cudaErrorNotReady;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return answer(submit(stream, [=] {
    inside_host_function() = true;
    function(data);
    inside_host_function() = false;
  }));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (cudaError_t const code = standing_error(current_device()); code != cudaSuccess) {
    return answer(code);
  }
  *event = new CUevent_st;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  ++the_machine().events;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) { return answer(cudaErrorInvalidResourceHandle); }
  delete event;
  --the_machine().events;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event == nullptr || !is_known(stream)) { return answer(cudaErrorInvalidResourceHandle); }
  int const device = stream != nullptr ? stream->device : current_device();
  if (cudaError_t const code = standing_error(device); code != cudaSuccess) { return answer(code); }
  std::lock_guard const lock{event->mutex};
  if (stream != nullptr && stream->recording) {
    event->recording = stream->recording;
    event->stream = stream;
    event->steps = stream->recording->added[stream];
    event->last = nullptr;
    return cudaSuccess;
  }
  event->recording = nullptr;
  auto const now = std::make_shared<moment>();
  now->device = device;
  event->last = now;
  CUstream_st* const on = stream != nullptr ? stream : legacy_stream(device);
  if (stream == nullptr) {
    for (auto* const one : streams_of(device, true)) { one->drain(); }
  }
  on->push([now] { now->pass(); });  // passes after a failure too, or whoever waits would hang
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event == nullptr || !is_known(stream)) { return answer(cudaErrorInvalidResourceHandle); }
  std::unique_lock lock{event->mutex};
  if (auto const recording = event->recording) {
    if (stream == nullptr) { return answer(cudaErrorStreamCaptureUnsupported); }
    auto& joined = recording->joined[event->stream];
    joined = joined > event->steps ? joined : event->steps;
    stream->recording = recording;
    recording->added[stream] += 0;
    return cudaSuccess;
  }
  if (spoils_capture(stream)) { return answer(cudaErrorStreamCaptureUnsupported); }
  auto const last = event->last;
  lock.unlock();
  if (last == nullptr) { return cudaSuccess; }
  return answer(submit(stream, [last] { last->wait(); }));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event == nullptr) { return answer(cudaErrorInvalidResourceHandle); }
  if (inside_host_function()) { return answer(cudaErrorNotPermitted); }
  std::lock_guard const lock{event->mutex};
  if (event->recording) { return answer(cudaErrorStreamCaptureUnsupported); }
  if (event->last == nullptr) { return answer(standing_error(current_device())); }
  if (!event->last->is_past()) { return cudaErrorNotReady; }
  return answer(standing_error(event->last->device));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event == nullptr) { return answer(cudaErrorInvalidResourceHandle); }
  if (inside_host_function()) { return answer(cudaErrorNotPermitted); }
  std::unique_lock lock{event->mutex};
  if (event->recording) { return answer(cudaErrorStreamCaptureUnsupported); }
  auto const last = event->last;
  lock.unlock();
  if (last == nullptr) { return answer(standing_error(current_device())); }
  last->wait();
  return answer(standing_error(last->device));
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
  if (first == nullptr || last == nullptr || !first->timed || !last->timed ||
      first->last == nullptr || last->last == nullptr) {
    return answer(cudaErrorInvalidResourceHandle);
  }
  if (!first->last->is_past() || !last->last->is_past()) { return cudaErrorNotReady; }
  *milliseconds =
      std::chrono::duration<float, std::milli>(last->last->at - first->last->at).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (stream == nullptr || !is_known(stream)) { return answer(cudaErrorStreamCaptureUnsupported); }
  if (stream->recording) { return answer(cudaErrorIllegalState); }
  stream->recording = std::make_shared<capture>();
  stream->recording->origin = stream;
  stream->recording->global = mode != cudaStreamCaptureModeRelaxed;
  if (stream->recording->global) { ++the_machine().global_captures; }
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (stream == nullptr || !stream->recording || stream->recording->origin != stream) {
    return answer(cudaErrorIllegalState);
  }
  auto const recording = stream->recording;
  bool joined = true;
  for (auto const& [one, steps] : recording->added) {
    one->recording = nullptr;
    joined = joined && (one == stream || recording->joined[one] >= steps);
  }
  stream->recording = nullptr;
  if (recording->global) { --the_machine().global_captures; }
  if (recording->broken) { return answer(cudaErrorStreamCaptureInvalidated); }
  if (!joined) { return answer(cudaErrorStreamCaptureUnjoined); }
  *graph = new CUgraph_st{std::move(recording->steps)};
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  bool const active = stream != nullptr && stream->recording;
  *status = !active                     ? cudaStreamCaptureStatusNone
            : stream->recording->broken ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (graph == nullptr) { return answer(cudaErrorInvalidValue); }
  *exec =
      new CUgraphExec_st{std::make_shared<std::vector<work> const>(graph->steps), current_device()};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (exec == nullptr) { return answer(cudaErrorInvalidValue); }
  auto const arranged = admit(call::launch);
  if (arranged.refused != cudaSuccess) { return answer(arranged.refused); }
  return answer(submit(
      stream,
      [steps = exec->steps, device = exec->device] {
        for (auto const& step : *steps) { perform(device, step); }
      },
      arranged.later));
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) {
  return exec != nullptr ? cudaSuccess : answer(cudaErrorInvalidValue);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

long long clock64() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
