// Sends the answers of a request to its client: as one response, or as a stream of events.
#pragma once
#include <httplib.h>

#include <memory>

#include "kernels/common/error.h"
#include "src/serve/reply.h"

namespace lft::serve {

/// The status of the response to a failed request.
int status_of(const Error& error);
/// An error of a request in one line, without place and advice, which refer to data files.
std::string message_of(const Error& error);

/// Waits for all answers.
void send_whole(Reply& reply, httplib::Response& response);
/// Chunked, except for HTTP/1.0, where the end of the connection is the end.
void send_stream(const std::shared_ptr<Reply>& reply, bool in_chunks, httplib::Response& response);

}  // namespace lft::serve
