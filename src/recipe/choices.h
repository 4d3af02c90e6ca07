// Recipe fields with a fixed set of words: one enum each, with one table of its words.
#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "src/base/errors.h"
#include "src/base/text.h"

namespace lft::recipe {

enum class ModelInit { kCheckpoint, kRandom };
enum class BaseDtype { kAuto, kBf16, kFp16, kFp32, kNf4, kFp8 };
enum class ImageFit { kAuto, kPad, kCrop, kNative };
enum class AlphaRule { kDrop, kWhite };
enum class BadSampleRule { kError, kSkip };
enum class UnknownKeyRule { kError, kWarn };
enum class SpecialTokenRule { kError, kText, kSpecial };
enum class ScheduleKind { kConstant, kLinear, kCosine, kWsd };
enum class ComputeDtype { kAuto, kBf16, kFp16, kFp32 };
enum class RecoveryRule { kFp32, kStop };
enum class Checkpointing { kNone, kBlock, kEvery2, kEvery4 };
enum class CudaGraphs { kAuto, kOff };
enum class KeepBest {
  kNone,
  kEvalLoss,
  kExact,
  kVqa,
  kAnls,
  kRelaxed,
  kChoice,
  kCaption,
  kRewardAccuracy
};
enum class Shard { kNone, kBase };
enum class ObjectiveName { kSft, kDpo, kIpo, kHinge, kApoZero, kSimpo, kOrpo, kKto };

/// An enum's words in the order of its values, and the name of the kind of word in errors.
template <size_t N>
struct WordTable {
  const char* what;
  std::array<const char*, N> words;
};
template <size_t N>
constexpr WordTable<N> word_table(const char* what, const char* const (&words)[N]) {
  return {what, std::to_array(words)};
}

template <class E>
constexpr auto kWords = nullptr;
template <>
inline constexpr auto kWords<ModelInit> = word_table("source of weights", {"checkpoint", "random"});
template <>
inline constexpr auto kWords<BaseDtype> = word_table("dtype", {"auto", "bf16", "fp16", "fp32",
                                                               "nf4", "fp8"});
template <>
inline constexpr auto kWords<ImageFit> = word_table("image fit", {"auto", "pad", "crop", "native"});
template <>
inline constexpr auto kWords<AlphaRule> = word_table("treatment of transparency",
                                                     {"drop", "white"});
template <>
inline constexpr auto kWords<BadSampleRule> = word_table("rule", {"error", "skip"});
template <>
inline constexpr auto kWords<UnknownKeyRule> = word_table("rule", {"error", "warn"});
template <>
inline constexpr auto kWords<SpecialTokenRule> = word_table("rule", {"error", "text", "special"});
template <>
inline constexpr auto kWords<ScheduleKind> = word_table("schedule",
                                                        {"constant", "linear", "cosine", "wsd"});
template <>
inline constexpr auto kWords<ComputeDtype> = word_table("dtype", {"auto", "bf16", "fp16", "fp32"});
template <>
inline constexpr auto kWords<RecoveryRule> = word_table("recovery", {"fp32", "stop"});
template <>
inline constexpr auto kWords<Checkpointing> = word_table("activation checkpointing",
                                                         {"none", "block", "every-2", "every-4"});
template <>
inline constexpr auto kWords<CudaGraphs> = word_table("rule", {"auto", "off"});
template <>
inline constexpr auto kWords<KeepBest> = word_table("metric", {"none", "eval_loss", "exact", "vqa",
                                                               "anls", "relaxed", "choice",
                                                               "caption", "reward_accuracy"});
template <>
inline constexpr auto kWords<Shard> = word_table("sharding", {"none", "base"});
template <>
inline constexpr auto kWords<ObjectiveName> =
    word_table("objective", {"sft", "dpo", "ipo", "hinge", "apo_zero", "simpo", "orpo", "kto"});

/// A value of such a field. From text: kUsage unless it is one of the enum's words.
template <class E>
struct Choice {
  E value = {};

  Choice() = default;
  Choice(E one) : value(one) {}                            // NOLINT: the value is one of its forms
  Choice(const char* word) : Choice(std::string(word)) {}  // NOLINT: and so is its word
  Choice(const std::string& word) {                        // NOLINT
    const auto& words = kWords<E>.words;
    const auto found = std::find(words.begin(), words.end(), word);
    if (found == words.end()) {
      refuse(ErrorKind::kUsage, std::string("unknown ") + kWords<E>.what, {}, word,
             join(all_words()));
    }
    value = static_cast<E>(found - words.begin());
  }
  std::string word() const { return kWords<E>.words[static_cast<size_t>(value)]; }
  bool operator==(const Choice&) const = default;

  static std::vector<std::string> all_words() {
    return {kWords<E>.words.begin(), kWords<E>.words.end()};
  }
};

}  // namespace lft::recipe
