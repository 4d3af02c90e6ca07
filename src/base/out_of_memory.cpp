#include "src/base/out_of_memory.h"

#include <unistd.h>

#include <exception>
#include <new>
#include <string_view>

#include "kernels/common/error.h"

namespace lft {
namespace {

std::terminate_handler g_other_causes = nullptr;

bool is_bad_alloc(const std::exception_ptr& error) {
  if (!error) return false;
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// This must not allocate, nor take a lock that this thread may hold.
[[noreturn]] void end() {
  if (is_bad_alloc(std::current_exception())) {
    for (const std::string_view part :
         {std::string_view("error: out of memory\n  found: std::bad_alloc\n  next: "),
          std::string_view(kFreeMemory), std::string_view("\n")}) {
      if (write(STDERR_FILENO, part.data(), part.size()) < 0) break;
    }
    _exit(static_cast<int>(ErrorKind::kResource));
  }
  g_other_causes();
  _exit(static_cast<int>(ErrorKind::kInternal));  // handlers do not return
}

}  // namespace

void end_where_memory_runs_out() { g_other_causes = std::set_terminate(end); }

}  // namespace lft
