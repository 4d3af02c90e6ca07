// A fake libcuda.so.1 with two devices, for the doctor's driver queries.
// FAKE_CUDA_FAILS: cuInit fails as without a device. FAKE_CUDA_VERSION: the supported CUDA version,
// instead of 12040.
#include <cstdio>
#include <cstdlib>

extern "C" {

int cuInit(unsigned) { return std::getenv("FAKE_CUDA_FAILS") != nullptr ? 100 : 0; }
int cuGetErrorString(int code, const char** text) {
  *text = "no CUDA-capable device is detected";
  return code == 100 ? 0 : 1;
}
int cuDriverGetVersion(int* version) {
  const char* asked = std::getenv("FAKE_CUDA_VERSION");
  *version = asked != nullptr ? std::atoi(asked) : 12040;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = 40 + index;
  return 0;
}
int cuDeviceGetName(char* name, int length, int device) {
  std::snprintf(name, static_cast<size_t>(length), device == 40 ? "Old Card" : "New Card");
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = device == 40 ? size_t{16'000'000'000} : size_t{80'000'000'000};
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (attribute != 75 && attribute != 76) return 1;
  *value = attribute == 75 ? (device == 40 ? 7 : 9) : (device == 40 ? 5 : 0);
  return 0;
}
}
