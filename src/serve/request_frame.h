// Finds the end of an HTTP request in the bytes of a connection and checks its head. It is strict,
// so that two readers of a request cannot find different bodies (request smuggling).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lft::serve {

struct FrameLimits {
  size_t head_bytes = 32u << 10;  // request line and headers
  size_t body_bytes = 32u << 20;
};

/// The response to a request that is not read any further. Status 0: no error.
struct Refusal {
  int status = 0;
  std::string message = {};
};

/// A request in two parts: its head as it was sent, its body without chunks.
struct FramedRequest {
  std::string head, body;
};

class RequestFrame {
 public:
  explicit RequestFrame(const FrameLimits& limits) : limits_(limits) {}
  enum class State : uint8_t { kMore, kWhole, kRefused };
  /// `bytes` are all received bytes of the request, and perhaps of the next one. Each call gets the
  /// bytes of the previous call and more.
  State look(std::string_view bytes);
  /// Whether the client waits for "100 Continue" before it sends the body. True once.
  bool takes_continue();
  const Refusal& refusal() const { return refusal_; }
  /// Removes a complete request from `bytes`; following bytes are kept.
  FramedRequest take_from(std::string& bytes) const;

 private:
  bool refuse(int status, const std::string& message);
  // Each returns false if it rejects the request or needs more bytes.
  bool find_head_end(std::string_view bytes);
  bool read_head(std::string_view head);
  bool read_field(std::string_view line);
  bool read_length(std::string_view value);
  bool find_body_end(std::string_view bytes);
  bool find_chunks_end(std::string_view bytes);

  const FrameLimits limits_;
  Refusal refusal_;
  size_t head_ = 0;  // bytes of the head with its empty line; 0: incomplete
  size_t line_ = 0;  // start of the next line of the head
  size_t end_ = 0;   // end of the request; 0: unknown
  int lengths_ = 0, hosts_ = 0;
  size_t length_ = 0;
  bool chunked_ = false, continues_ = false;
  size_t chunk_ = 0;  // start of the next chunk
  bool in_trailer_ = false;
  std::string chunks_ = {};  // for a chunked body: the received part
};

}  // namespace lft::serve
