#include "src/text/sentencepiece_model.h"

#include <fcntl.h>
#include <sentencepiece_processor.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "kernels/common/error.h"
#include "src/io/files.h"
#include "src/text/charsmap.h"
#include "src/text/pipeline/aligned.h"
#include "src/text/pipeline/json_access.h"
#include "src/text/protobuf.h"

namespace lft::text {
namespace {

constexpr uint64_t kMaxModelBytes = 64u << 20;
constexpr unsigned kProbeSeconds = 20;
constexpr size_t kMaxPieceBytes = 4096;  // the library recurses or allocates by the longest piece
constexpr size_t kProbePieceBytes = 4096;
enum ProbeResult { kWorks = 0, kRefused = 10 };

using Processor = sentencepiece::SentencePieceProcessor;

/// Protobuf merges a repeated message field, so a setting of normalizer_spec (field 3 of the model)
/// can be appended to the file.
std::string with_switch(std::string model, SentencePieceModel::Normalization normalization) {
  if (normalization == SentencePieceModel::Normalization::kOwn) return model;
  const std::string spec{0x18, 0};  // 3: add_dummy_prefix = false
  return model + char(0x1A) + char(spec.size()) + spec;
}

/// Fields of the library's SentencePieceText and of its pieces (sentencepiece.proto). Only versions
/// from 0.1.97 on have a class that reads them.
enum TextField : uint32_t { kPieces = 2 };
enum PieceField : uint32_t { kId = 2, kBegin = 4, kEnd = 5 };

Piece piece_of(std::string_view message) {
  Piece piece{};
  ProtobufFields fields(message);
  while (fields.next()) {
    const auto number = static_cast<uint32_t>(fields.number());
    if (fields.field() == kId) piece.id = number;
    if (fields.field() == kBegin) piece.begin = number;
    if (fields.field() == kEnd) piece.end = number;
  }
  return piece;
}

/// The operations of every run with the model: load, encode, name pieces. Runs in the child.
int try_model(const std::string& model) {
  Processor processor;
  if (!processor.LoadFromSerializedProto(model).ok()) return kRefused;
  std::string pieces;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    const std::string& piece = processor.IdToPiece(id);
    if (piece.size() > kMaxPieceBytes) return kRefused;
    if (pieces.size() < kProbePieceBytes) pieces += piece;
  }
  std::string ascii;
  for (char c = 1; c < 127; ++c) ascii += c;
  const std::string mixed =
      "  USER: caf\xC3\xA9\n\n\xE2\x96\x81\xE2\x96\x81 na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD "
      "\xF0\x9F\x98\x80 e\xCC\x81 ASSISTANT:\t42</s>";
  for (const std::string& text : {ascii, mixed, to_valid_utf8(pieces)}) {
    if (processor.EncodeAsSerializedProto(text).empty()) return kRefused;
  }
  return kWorks;
}

[[noreturn]] void run_child(const std::string& model) {
  const rlimit no_core{0, 0}, time{kProbeSeconds, kProbeSeconds};
  setrlimit(RLIMIT_CORE, &no_core);
  setrlimit(RLIMIT_CPU, &time);
  alarm(2 * kProbeSeconds);
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  int result = kRefused;
  try {
    result = try_model(model);
  } catch (...) {
    result = kRefused;
  }
  _exit(result);
}

[[noreturn]] void bad_model(const std::string& path, const std::string& what) {
  bad_tokenizer(path, what, {}, "a SentencePiece model file", "fetch the file again");
}

/// Checks the rules, whose errors the child's trial texts may not trigger.
void check_charsmap(const std::string& model, const std::string& path) {
  std::string fault;
  try {
    fault = charsmap_fault(model);
  } catch (const Error&) {
    bad_model(path, "not a readable SentencePiece model");
  }
  if (!fault.empty())
    bad_tokenizer(path, "the tokenizer's normalisation rules are damaged",
                  "precompiled_charsmap: " + fault, "rules within their own bytes",
                  "fetch the file again");
}

/// The library can crash on a damaged model, so a child process tries it first.
void probe(const std::string& model, const std::string& path) {
  const pid_t child = fork();
  if (child < 0)
    refuse(ErrorKind::kResource, "cannot start a process to try the tokenizer in", path, {}, {},
           "free memory, or raise the limit on processes (ulimit -u, a container's)");
  if (child == 0) run_child(model);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR)
      refuse(ErrorKind::kResource, "the process that tries the tokenizer was lost", path, {}, {},
             "start lft from a program that does not ignore SIGCHLD, such as a shell");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kWorks) return;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kRefused)
    bad_model(path, "not a readable SentencePiece model");
  bad_model(path, "tokenizer model crashes the tokenizer library");
}

}  // namespace

struct SentencePieceModel::Impl {
  Processor processor;
};

SentencePieceModel::SentencePieceModel(const std::string& path, Normalization normalization)
    : impl_(std::make_unique<Impl>()) {
  const std::string model = with_switch(io::read_file(path, kMaxModelBytes), normalization);
  check_charsmap(model, path);
  probe(model, path);
  if (!impl_->processor.LoadFromSerializedProto(model).ok())
    bad_model(path, "not a readable SentencePiece model");
}

SentencePieceModel::~SentencePieceModel() = default;

std::vector<Piece> SentencePieceModel::encode(std::string_view text) const {
  const std::string encoded = impl_->processor.EncodeAsSerializedProto({text.data(), text.size()});
  if (encoded.empty() && !text.empty())
    bad_tokenizer("tokenizer.model", "the tokenizer library cannot encode a text");
  std::vector<Piece> out;
  ProtobufFields fields(encoded);
  while (fields.next()) {
    if (fields.field() != kPieces) continue;
    Piece one = piece_of(fields.bytes());
    // The library gives the span of a character's byte tokens to the last one only.
    if (is_byte(one.id) && one.begin == one.end && one.begin < text.size())
      one.end += uint32_t(utf8_length(text, one.begin));
    out.push_back(one);
  }
  return out;
}

int64_t SentencePieceModel::size() const { return impl_->processor.GetPieceSize(); }
std::string SentencePieceModel::piece(int64_t id) const {
  return impl_->processor.IdToPiece(int(id));
}
bool SentencePieceModel::is_control(int64_t id) const {
  return impl_->processor.IsControl(int(id));
}
bool SentencePieceModel::is_unknown(int64_t id) const {
  return impl_->processor.IsUnknown(int(id));
}
bool SentencePieceModel::is_byte(int64_t id) const { return impl_->processor.IsByte(int(id)); }
int64_t SentencePieceModel::bos() const { return impl_->processor.bos_id(); }
int64_t SentencePieceModel::eos() const { return impl_->processor.eos_id(); }
int64_t SentencePieceModel::pad() const { return impl_->processor.pad_id(); }

}  // namespace lft::text
