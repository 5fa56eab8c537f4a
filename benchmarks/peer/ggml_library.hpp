// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace::peer {

/// The few functions of ggml's C interface that multiply matrices, found in shared libraries at run
/// time.
class ggml_library {
 public:
  /// base: libggml-base.so; cpu: libggml-cpu.so or one of its variants.
  ggml_library(std::string const& base, std::string const& cpu) {
    libraries_[0] = open(base);
    libraries_[1] = open(cpu);
    using log_line = void(int, char const*, void*);
    find<void(log_line*, void*)>("ggml_log_set")([](int, char const*, void*) {}, nullptr);
  }

  template <class Function>
  [[nodiscard]] Function* find(char const* name) const {
    for (void* library : libraries_) {
      if (void* const symbol = dlsym(library, name)) { return reinterpret_cast<Function*>(symbol); }
    }
    throw std::runtime_error{"the ggml libraries have no function " + std::string{name}};
  }
  template <class Function>
  [[nodiscard]] Function* try_find(char const* name) const noexcept {
    for (void* library : libraries_) {
      if (void* const symbol = dlsym(library, name)) { return reinterpret_cast<Function*>(symbol); }
    }
    return nullptr;
  }

 private:
  static void* open(std::string const& path) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) { return library; }
    throw std::runtime_error{dlerror()};
  }
  void* libraries_[2] = {};
};

/// Where ggml keeps weights: as they are in the file, or reordered at load where it has a layout
/// for the type.
enum class ggml_weights { plain, repacked };

/// Products y = w x of several matrices of one shape with one x, each a graph of its own on a team
/// of threads that lasts.
class ggml_products {
 public:
  struct shape {
    int type;
    std::int64_t rows, cols, tokens;
  };

  ggml_products(ggml_library const& ggml,
                int threads,
                shape const& of,
                std::size_t count,
                ggml_weights layout)
      : free_buffer_{ggml.find<void(void*)>("ggml_backend_buffer_free")},
        free_context_{ggml.find<void(void*)>("ggml_free")},
        compute_{ggml.find<int(void*, void*)>("ggml_backend_graph_compute")},
        set_{ggml.find<void(void*, void const*, std::size_t, std::size_t)>(
            "ggml_backend_tensor_set")},
        get_{ggml.find<void(void const*, void*, std::size_t, std::size_t)>(
            "ggml_backend_tensor_get")} {
    backend_ = ggml.find<void*()>("ggml_backend_cpu_init")();
    alignas(16) unsigned char parameters[4096];  // ggml_threadpool_params, filled by the library
    ggml.find<void(void*, int)>("ggml_threadpool_params_init")(parameters, threads);
    void* const team = ggml.find<void*(void*)>("ggml_threadpool_new")(parameters);
    ggml.find<void(void*, int)>("ggml_backend_cpu_set_n_threads")(backend_, threads);
    ggml.find<void(void*, void*)>("ggml_backend_cpu_set_threadpool")(backend_, team);

    struct init_params {
      std::size_t mem_size;
      void* mem_buffer;
      bool no_alloc;
    } const without_data{16U << 20U, nullptr, true};
    auto* const new_context = ggml.find<void*(init_params)>("ggml_init");
    auto* const new_matrix =
        ggml.find<void*(void*, int, std::int64_t, std::int64_t)>("ggml_new_tensor_2d");
    weight_context_ = new_context(without_data);
    context_ = new_context(without_data);
    for (std::size_t i = 0; i < count; ++i) {
      weights_.push_back(new_matrix(weight_context_, of.type, of.cols, of.rows));
    }
    void* type = ggml.find<void*(void*)>("ggml_backend_get_default_buffer_type")(backend_);
    if (layout == ggml_weights::repacked) {
      auto* const repack = ggml.try_find<void*()>("_Z35ggml_backend_cpu_repack_buffer_typev");
      if (repack == nullptr) { throw std::runtime_error{"this ggml has no repacked weights"}; }
      type = repack();
    }
    weight_buffer_ = ggml.find<void*(void*, void*)>("ggml_backend_alloc_ctx_tensors_from_buft")(
        weight_context_, type);
    x_ = new_matrix(context_, 0, of.cols, of.tokens);
    auto* const multiply = ggml.find<void*(void*, void*, void*)>("ggml_mul_mat");
    for (void* const w : weights_) { y_.push_back(multiply(context_, w, x_)); }
    buffer_ = ggml.find<void*(void*, void*)>("ggml_backend_alloc_ctx_tensors")(context_, backend_);
    auto* const new_graph = ggml.find<void*(void*)>("ggml_new_graph");
    auto* const expand = ggml.find<void(void*, void*)>("ggml_build_forward_expand");
    graph_context_ = new_context({(count + 1) * (1U << 20U), nullptr, true});
    for (void* const y : y_) {
      graphs_.push_back(new_graph(graph_context_));
      expand(graphs_.back(), y);
    }
  }
  ggml_products(ggml_products const&) = delete;
  ggml_products& operator=(ggml_products const&) = delete;
  ~ggml_products() {
    for (void* buffer : {buffer_, weight_buffer_}) {
      if (buffer != nullptr) { free_buffer_(buffer); }
    }
    for (void* context : {graph_context_, context_, weight_context_}) { free_context_(context); }
  }

  void set_weights(std::size_t i, void const* data, std::size_t bytes) {
    set_(weights_[i], data, 0, bytes);
  }
  void set_x(float const* data, std::size_t count) { set_(x_, data, 0, count * sizeof(float)); }
  void compute(std::size_t i) {
    if (compute_(backend_, graphs_[i]) != 0) { throw std::runtime_error{"ggml could not compute"}; }
  }
  void get_y(std::size_t i, float* data, std::size_t count) const {
    get_(y_[i], data, 0, count * sizeof(float));
  }

 private:
  void (*free_buffer_)(void*);
  void (*free_context_)(void*);
  int (*compute_)(void*, void*);
  void (*set_)(void*, void const*, std::size_t, std::size_t);
  void (*get_)(void const*, void*, std::size_t, std::size_t);
  void* backend_ = nullptr;
  void* weight_context_ = nullptr;
  void* context_ = nullptr;
  void* graph_context_ = nullptr;
  void* weight_buffer_ = nullptr;
  void* buffer_ = nullptr;
  void* x_ = nullptr;
  std::vector<void*> weights_, y_, graphs_;
};

}  // namespace terrace::peer
