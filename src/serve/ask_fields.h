// The fields that chat completions and completions have in common. Unknown fields are rejected,
// because ignoring one could change the answer.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/json.h"
#include "src/serve/bad_request.h"

namespace lft::serve {

struct AskFields {
  std::string model;       // "": not given
  int64_t answers = 1;     // n: independent draws
  int64_t max_tokens = 0;  // 0: not given
  double temperature = 0, top_p = 1;
  int64_t top_k = 0;              // 0: all; vLLM's name, like the next
  double repetition_penalty = 1;  // for ids of the prompt and of the answer so far
  std::optional<uint64_t> seed;   // not set: each answer is a new sample
  std::vector<std::string> stop;  // texts that end an answer
  bool stream = false, include_usage = false;
  std::optional<int64_t> top_scores;  // if set: log-probabilities, also of this many likely tokens
};

constexpr int64_t kMostAnswers = 64;    // of one request
constexpr int64_t kMostTopScores = 20;  // as in OpenAI's API
constexpr io::JsonLimits kRequestLimits{.max_bytes = 64u << 20, .max_depth = 32};

/// The body of a request, an object. Throws BadRequest with the position of an error.
io::Json read_body(std::string_view body);

/// Takes a field of AskFields, except for log-probabilities; a null value is as if it were absent.
/// False: it is another field.
bool take_field(const std::string& field, const io::Json& value, AskFields& ask);
/// Reads "stream_options"; after all other fields.
void read_stream_options(const io::Json& object, AskFields& ask);
/// Throws BadRequest unless the value of a field that this server does not support is neutral.
void check_neutral(const std::string& field, const io::Json& value);

/// Typed values; each throws BadRequest. Some clients write integers as 16.0 or 1e2.
int64_t whole_field(const io::Json& value, const std::string& field, int64_t low, int64_t high);
bool truth_field(const io::Json& value, const std::string& field);

}  // namespace lft::serve
