// What tch 0.24 does not offer of libtorch 2.11. Every function catches what libtorch throws and gives it as a message
// in `error` (NUL-terminated, cut to its length); it is empty if all went well.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/DLConvertor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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

// A DLManagedTensor that shares the memory of `tensor`.
void* hsipack_to_dlpack(const at::Tensor* tensor, char* error) {
  return guarded(error, [&]() -> void* { return at::toDLPack(*tensor); });
}

// The tensor of a DLManagedTensor, which is libtorch's if there is no error.
at::Tensor* hsipack_from_dlpack(void* managed, char* error) {
  return guarded(error, [&]() -> at::Tensor* {
    return new at::Tensor(at::fromDLPack(static_cast<DLManagedTensor*>(managed)));
  });
}

}
