// What tch 0.24 does not offer of libtorch 2.11. Every function catches what libtorch throws and gives it as a message
// in `error` (NUL-terminated, cut to its length); it is empty if all went well.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/DLConvertor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/core/ScalarType.h>

#include <cstring>
#include <exception>

namespace {

constexpr size_t kErrorBytes = 512;

template <typename Work>
auto guarded(char* error, Work work) -> decltype(work()) {
  error[0] = '\0';
  try {
    return work();
  } catch (const c10::Error& caught) {
    std::strncpy(error, caught.what_without_backtrace(), kErrorBytes - 1);
  } catch (const std::exception& caught) {
    std::strncpy(error, caught.what(), kErrorBytes - 1);
  } catch (...) {
    std::strncpy(error, "unknown exception", kErrorBytes - 1);
  }
  error[kErrorBytes - 1] = '\0';
  return decltype(work())();
}

at::Generator generator(const at::Tensor& tensor, uint64_t seed) {
  at::Generator made = tensor.is_cpu()
      ? at::detail::createCPUGenerator(seed)
      : at::globalContext().getAcceleratorHooksInterface(tensor.device().type())
            .getNewGenerator(tensor.device().index());
  made.set_current_seed(seed);
  return made;
}

} // namespace

extern "C" {

// The calling thread's current stream of a CUDA device (a cudaStream_t; null is the default stream).
void* hsipack_current_stream(int device, char* error) {
  return guarded(error, [&]() -> void* {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    const c10::Device on(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    return guard.getStream(on).native_handle();
  });
}

// Tells the allocator that the calling thread's current stream of a CUDA device uses the memory of `tensor`.
void hsipack_record_stream(const at::Tensor* tensor, int device, char* error) {
  guarded(error, [&]() -> int {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    const c10::Device on(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    tensor->record_stream(guard.getStream(on));
    return 0;
  });
}

// How many tensors and others share the memory of `tensor`.
size_t hsipack_storage_uses(const at::Tensor* tensor, char* error) {
  return guarded(error, [&]() -> size_t { return tensor->storage().use_count(); });
}

// A tensor over memory of somebody else's; `release(context)` is called, once, when its last user is gone.
at::Tensor* hsipack_from_memory(
    void* data, const int64_t* sizes, size_t dimensions, int kind,
    void (*release)(void*), void* context, char* error) {
  bool owned = false;
  at::Tensor* made = guarded(error, [&]() -> at::Tensor* {
    auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(kind)).device(at::kCPU);
    auto done = [release, context](void*) { release(context); };
    owned = true;
    return new at::Tensor(at::from_blob(data, at::IntArrayRef(sizes, dimensions), done, options));
  });
  if (made == nullptr && !owned) {
    release(context);
  }
  return made;
}

// Fills a tensor with numbers of a generator of its own: standard normal ones, or uniform ones in [-1, 1).
void hsipack_fill_random(at::Tensor* tensor, uint64_t seed, int normal, char* error) {
  guarded(error, [&]() -> int {
    const at::AutoDispatchBelowADInplaceOrView no_grad;
    auto own = generator(*tensor, seed);
    if (normal != 0) {
      tensor->normal_(0.0, 1.0, own);
    } else {
      tensor->uniform_(-1.0, 1.0, own);
    }
    return 0;
  });
}

// A DLManagedTensor that shares the memory of `tensor`; with `as_unsigned`, signed integers are told as unsigned ones.
void* hsipack_to_dlpack(const at::Tensor* tensor, int as_unsigned, char* error) {
  return guarded(error, [&]() -> void* {
    if (as_unsigned == 0) {
      return at::toDLPack(*tensor);
    }
    const auto width = tensor->element_size();
    return at::toDLPack(tensor->view(width == 2 ? at::kUInt16 : width == 4 ? at::kUInt32 : at::kUInt64));
  });
}

// The tensor of a DLManagedTensor, which is libtorch's if there is no error.
at::Tensor* hsipack_from_dlpack(void* managed, char* error) {
  return guarded(error, [&]() -> at::Tensor* {
    return new at::Tensor(at::fromDLPack(static_cast<DLManagedTensor*>(managed)));
  });
}

// Frees a DLManagedTensor that nobody took.
void hsipack_dlpack_delete(void* managed) {
  auto* tensor = static_cast<DLManagedTensor*>(managed);
  if (tensor->deleter != nullptr) {
    tensor->deleter(tensor);
  }
}

// DLPack's number of the tensor's kind of device; `number` is that of the device.
int hsipack_dlpack_device(const at::Tensor* tensor, int* number, char* error) {
  return guarded(error, [&]() -> int {
    const auto device = at::torchDeviceToDLDevice(tensor->device());
    *number = device.device_id;
    return static_cast<int>(device.device_type);
  });
}
}
