#include <algorithm>
#include <filesystem>
#include <memory>

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/infer.h"
#include "src/cli/infer_target.h"
#include "src/serve/chat_server.h"
#include "src/serve/host_names.h"

namespace lft::cli {
namespace {

struct ServeCommand {
  InferOptions infer;
  std::string host = "127.0.0.1", name;
  int64_t port = 8000, batch = 8, queue = 256, max_new_tokens = 1024, request_time = 30;
};

/// Each waiting request has a thread; the remaining threads answer without waiting.
constexpr int64_t kThreads = 1024, kMoreThreads = 16;

/// The default name of the model: the last part of the path of the adapter or model.
std::string name_of(const ServeCommand& command) {
  if (!command.name.empty()) return command.name;
  const std::string& path =
      command.infer.adapter.empty() ? command.infer.model : command.infer.adapter;
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

void serve(ServeCommand command) {
  settle_target(command.infer);
  InferModel infer = load_infer_model(command.infer);
  // Text in a request is always plain text.
  infer.encode.special_tokens = data::SpecialTokensInText::kText;
  serve::ChatServerOptions options{.name = name_of(command),
                                   .max_new_tokens = command.max_new_tokens,
                                   .engine = {.batch = static_cast<size_t>(command.batch),
                                              .queue = static_cast<size_t>(command.queue)},
                                   .server = {}};
  options.server.accept.request_time = std::chrono::seconds(command.request_time);
  options.server.threads =
      static_cast<size_t>(std::min(command.batch + command.queue, kThreads) + kMoreThreads);
  serve::ChatServer server({infer.model, *infer.tokenizer, infer.encode, infer.dtype}, options);
  if (!serve::is_loopback(command.host))
    warning("whoever reaches " + command.host + " can use this server: it asks for no key");
  serve::serve(server, command.host, static_cast<int>(command.port), [&](int port) {
    const bool six = command.host.find(':') != std::string::npos;
    print_line(
        "serving " + options.name + " at http://" +
        (six ? "[" + command.host + "]" : command.host) + ":" + std::to_string(port) +
        "/v1; Ctrl-C finishes the running answers and exits, a second one exits immediately");
  });
  notice("served: every accepted request has been answered");
}

}  // namespace

void add_serve(Command& app) {
  Command command = app.subcommand(
      "serve", "serve OpenAI clients (chat completions with images), for trying a model");
  const auto options = std::make_shared<ServeCommand>();
  add_infer_options(command, options->infer);
  command.option("--host", options->host, "address to listen on").show_default();
  command.option("--port", options->port, "port to listen on; 0: any free port")
      .show_default()
      .range(0, 65535);
  command.option("--name", options->name,
                 "name of the model in requests (default: the name of the adapter's or the model's "
                 "directory)");
  command.option("--batch", options->batch, "maximum number of answers that are decoded together")
      .show_default()
      .range(1, 256);
  command.option("--queue", options->queue, "maximum number of waiting requests; one more gets 429")
      .show_default()
      .range(1, 1 << 16);
  command
      .option("--max-new-tokens", options->max_new_tokens, "maximum number of tokens in an answer")
      .show_default()
      .range(1, 1 << 20);
  command
      .option("--request-time", options->request_time, "timeout in seconds for receiving a request")
      .show_default()
      .range(1, 3600);
  command.run([options] { serve(*options); });
}

}  // namespace lft::cli
