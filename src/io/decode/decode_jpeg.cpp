// setjmp is called in functions without destructors, since libjpeg leaves them through longjmp.
// jpeglib.h wants stdio before it.
// clang-format off
#include <csetjmp>
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cstdlib>

#include "kernels/common/error.h"
#include "src/io/decode/decode.h"

namespace lft::io {
namespace {

constexpr int kMaxScans = 500;  // a progressive file with thousands of scans takes minutes

struct Job {
  jpeg_decompress_struct decoder{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  jmp_buf leave;
  char message[JMSG_LENGTH_MAX] = "";  // the first damage warning, or the error
  char local[JMSG_LENGTH_MAX] = "";    // the first warning of damage that a restart marker limits
  std::vector<uint8_t> row;            // one row of a CMYK image
  size_t room = 0;                     // minimum size of the pixels in bytes
};

Job* job_of(j_common_ptr decoder) { return static_cast<Job*>(decoder->client_data); }

void on_error(j_common_ptr decoder) {
  Job* job = job_of(decoder);
  decoder->err->format_message(decoder, job->message);
  longjmp(job->leave, 1);
}

/// Warnings for files whose picture is complete: bytes between parts, a revision, a colour
/// transform or odd fields of a scan, all of which PIL ignores.
bool is_harmless(int warning) {
  const std::array harmless = {JWRN_EXTRANEOUS_DATA, JWRN_JFIF_MAJOR, JWRN_ADOBE_XFORM,
                               JWRN_NOT_SEQUENTIAL};
  return std::ranges::find(harmless, warning) != harmless.end();
}

/// Damage that ends at the next restart marker: the markers, all present and in order, keep the
/// rest of the picture in position.
bool is_local(int warning, const jpeg_decompress_struct& decoder) {
  const std::array local = {JWRN_HUFF_BAD_CODE, JWRN_ARITH_BAD_CODE, JWRN_HIT_MARKER};
  return decoder.restart_interval > 0 && std::ranges::find(local, warning) != local.end();
}

void on_message(j_common_ptr decoder, int level) {
  Job* job = job_of(decoder);
  const int warning = decoder->err->msg_code;
  if (level >= 0 || is_harmless(warning)) return;
  char* message = is_local(warning, job->decoder) ? job->local : job->message;
  if (message[0] == '\0') decoder->err->format_message(decoder, message);
}

void on_progress(j_common_ptr decoder) {
  Job* job = job_of(decoder);
  if (job->decoder.input_scan_number <= kMaxScans) return;
  snprintf(job->message, sizeof job->message, "more than %d scans", kMaxScans);
  longjmp(job->leave, 1);
}

/// Adobe stores CMYK inverted, and PIL treats every CMYK JPEG like that. Then PIL's convert("RGB")
/// follows, without colour management.
void cmyk_row_to_rgb(const std::vector<uint8_t>& stored, uint8_t* rgb) {
  for (size_t x = 0; 4 * x < stored.size(); ++x) {
    const int white = stored[4 * x + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int product = (255 - stored[4 * x + c]) * white + 128;
      rgb[3 * x + c] = static_cast<uint8_t>(white - (((product >> 8) + product) >> 8));
    }
  }
}

void read_rows(Job* job, RgbImage* image) {
  jpeg_decompress_struct* decoder = &job->decoder;
  const size_t row_bytes = size_t{3} * decoder->output_width;
  while (decoder->output_scanline < decoder->output_height) {
    uint8_t* target = image->rgb_hwc.data() + decoder->output_scanline * row_bytes;
    uint8_t* row = job->row.empty() ? target : job->row.data();
    jpeg_read_scanlines(decoder, &row, 1);
    if (!job->row.empty()) cmyk_row_to_rgb(job->row, target);
  }
}

/// `shrink` 1 or 8: the output size is that fraction of the stored size; every byte of the file is
/// read in any case.
bool decode(Job* job, std::string_view bytes, unsigned shrink, RgbImage* image) {
  jpeg_decompress_struct* decoder = &job->decoder;
  if (setjmp(job->leave) != 0) return false;
  jpeg_create_decompress(decoder);
  decoder->client_data = job;
  decoder->progress = &job->progress;
  jpeg_mem_src(decoder, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(decoder, TRUE);
  const bool is_cmyk = decoder->num_components == 4;
  decoder->out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
  decoder->scale_num = 1;
  decoder->scale_denom = shrink;
  jpeg_start_decompress(decoder);
  image->width = decoder->output_width;
  image->height = decoder->output_height;
  image->rgb_hwc.resize(
      std::max(job->room, size_t{3} * decoder->output_width * decoder->output_height));
  if (is_cmyk) job->row.resize(size_t{4} * decoder->output_width);
  read_rows(job, image);
  jpeg_finish_decompress(decoder);
  return job->message[0] == '\0';
}

struct Encoding {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  jmp_buf leave;
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
};

bool encode(Encoding* job, const RgbImage& image) {
  jpeg_compress_struct* encoder = &job->encoder;
  if (setjmp(job->leave) != 0) return false;
  jpeg_create_compress(encoder);
  encoder->client_data = job;
  jpeg_mem_dest(encoder, &job->bytes, &job->size);
  encoder->image_width = static_cast<JDIMENSION>(image.width);
  encoder->image_height = static_cast<JDIMENSION>(image.height);
  encoder->input_components = 3;
  encoder->in_color_space = JCS_RGB;
  jpeg_set_defaults(encoder);
  jpeg_set_quality(encoder, /*quality=*/85, /*force_baseline=*/TRUE);
  jpeg_start_compress(encoder, /*write_all_tables=*/TRUE);
  while (encoder->next_scanline < encoder->image_height) {
    auto* row = const_cast<JSAMPROW>(image.rgb_hwc.data()) +
                size_t{3} * encoder->image_width * encoder->next_scanline;
    jpeg_write_scanlines(encoder, &row, 1);
  }
  jpeg_finish_compress(encoder);
  return true;
}

struct Decoded {
  RgbImage image;
  std::string damage;
};

Decoded run(std::string_view bytes, const std::string& where, unsigned shrink, size_t room) {
  Job job;
  job.room = room;
  job.decoder.err = jpeg_std_error(&job.errors);
  job.decoder.client_data = &job;
  job.errors.error_exit = on_error;
  job.errors.emit_message = on_message;
  job.progress.progress_monitor = on_progress;
  RgbImage image;
  const bool ok = decode(&job, bytes, shrink, &image);
  if (shrink > 1) {
    image.width = job.decoder.image_width;
    image.height = job.decoder.image_height;
  }
  jpeg_destroy_decompress(&job.decoder);
  if (!ok) throw_damaged_image("jpeg", where, job.message);
  return {std::move(image), job.local};
}

}  // namespace

std::string jpeg_library() { return "libjpeg " + std::to_string(JPEG_LIB_VERSION); }

RgbImage decode_jpeg(std::string_view bytes, const std::string& where, size_t room) {
  return run(bytes, where, 1, room).image;
}

ImageCheck check_jpeg(std::string_view bytes, const std::string& where) {
  constexpr unsigned kShrink = 8;  // one value per 8 x 8 block: no transform, few pixels
  const Decoded decoded = run(bytes, where, kShrink, /*room=*/0);
  return {decoded.image.width, decoded.image.height, decoded.damage};
}

std::string encode_jpeg(const RgbImage& image) {
  Encoding job;
  job.encoder.err = jpeg_std_error(&job.errors);
  job.encoder.client_data = &job;
  job.errors.error_exit = [](j_common_ptr encoder) {
    longjmp(static_cast<Encoding*>(encoder->client_data)->leave, 1);
  };
  const bool ok = encode(&job, image);
  char message[JMSG_LENGTH_MAX] = "";
  if (!ok) job.errors.format_message(reinterpret_cast<j_common_ptr>(&job.encoder), message);
  std::string file(reinterpret_cast<const char*>(job.bytes), ok ? job.size : 0);
  jpeg_destroy_compress(&job.encoder);
  std::free(job.bytes);
  if (!ok) refuse(ErrorKind::kInput, "the picture cannot be written as JPEG", "", message);
  return file;
}

}  // namespace lft::io
