#include <cmath>

#include "kernels/rms_norm/rms_norm.h"

namespace lft {

void rms_norm_ref(const RmsNormArgs& args, const void* delta, void* sum, void* y) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const int64_t first = r * args.cols;
    const void* from = delta != nullptr ? sum : args.x;
    double squares = 0;
    for (int64_t i = first; i < first + args.cols; ++i) {
      if (delta != nullptr)
        store_float(args.x_type, sum, i,
                    load_float(args.x_type, args.x, i) + load_float(args.x_type, delta, i));
      const double value = load_float(args.x_type, from, i);
      squares += value * value;
    }
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(args.cols) + args.eps);
    args.rstd[r] = static_cast<float>(rstd);
    for (int64_t c = 0; c < args.cols; ++c) {
      const double value =
          load_float(args.w_type, args.w, c) * (load_float(args.x_type, from, first + c) * rstd);
      store_float(args.y_type, y, first + c, static_cast<float>(value));
    }
  }
}

void rms_norm_backward_ref(const RmsNormArgs& args, const void* dy, const void* dsum, void* dx) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const int64_t first = r * args.cols;
    const double rstd = args.rstd[r];
    double dot = 0;
    for (int64_t c = 0; c < args.cols; ++c) {
      dot += static_cast<double>(load_float(args.w_type, args.w, c)) *
             load_float(args.y_type, dy, first + c) * load_float(args.x_type, args.x, first + c);
    }
    const double shrink = rstd * rstd * dot / static_cast<double>(args.cols);
    for (int64_t c = 0; c < args.cols; ++c) {
      const double weighted = static_cast<double>(load_float(args.w_type, args.w, c)) *
                              load_float(args.y_type, dy, first + c);
      const double beside = dsum != nullptr ? load_float(args.x_type, dsum, first + c) : 0;
      const double value =
          beside + rstd * (weighted - load_float(args.x_type, args.x, first + c) * shrink);
      store_float(args.x_type, dx, first + c, static_cast<float>(value));
    }
  }
}

}  // namespace lft
