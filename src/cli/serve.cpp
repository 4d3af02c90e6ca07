#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/cli/commands.h"
#include "src/cli/infer.h"
#include "src/cli/infer_target.h"
#include "src/cli/serve_models.h"
#include "src/io/run_folder.h"
#include "src/serve/chat_server.h"
#include "src/serve/host_names.h"

namespace lft::cli {
namespace {

struct ServeCommand {
  InferOptions infer;
  std::vector<std::string> adapters, keys, origins;
  std::string host = "127.0.0.1", name;
  int64_t port = 8000, batch = 8, queue = 256, max_new_tokens = 1024, request_time = 30;
};

/// Each waiting request has a thread; the remaining threads answer without waiting.
constexpr int64_t kThreads = 1024, kMoreThreads = 16;
constexpr const char* kKeyVariable = "LFT_API_KEY";

/// One adapter alone replaces the base, several are served next to it.
ServedModels load_models(ServeCommand& command) {
  InferOptions& infer = command.infer;
  const bool single = command.adapters.empty() || is_single(command.adapters);
  if (single && !command.adapters.empty())
    infer.adapter = io::adapter_folder(command.adapters.front());
  settle_target(infer);
  const std::string& path = single && !infer.adapter.empty() ? infer.adapter : infer.model;
  const auto named = [&](const std::string& base) {
    return command.name.empty() ? name_of_path(base) : command.name;
  };
  if (single) return load_one(infer, named(path));
  if (!infer.adapter.empty()) {  // of the run that was named
    command.adapters.insert(command.adapters.begin(),
                            name_of_path(infer.target) + "=" + infer.adapter);
    infer.adapter.clear();
  }
  if (infer.model.empty()) {
    InferOptions first;
    first.adapter = named_adapters(command.adapters, "").front().path;
    settle_target(first);
    infer.model = first.model;
  }
  return load_several(infer, named(infer.model),
                      named_adapters(command.adapters, named(infer.model)));
}

/// Keys of the options and of the environment, whose value is not in the list of processes.
std::vector<std::string> all_keys(const ServeCommand& command) {
  std::vector<std::string> keys = command.keys;
  if (const char* const value = std::getenv(kKeyVariable)) {
    std::istringstream list(value);
    for (std::string key; std::getline(list, key, ',');)
      if (!trimmed(key).empty()) keys.emplace_back(trimmed(key));
  }
  for (const std::string& key : keys) {
    if (std::ranges::all_of(key, [](char c) { return c > ' ' && c < 0x7f; }) && !key.empty())
      continue;
    refuse(ErrorKind::kUsage, "an API key is empty or contains a space or another character",
           std::string("--api-key, ") + kKeyVariable,
           "a key of " + std::to_string(key.size()) + " bytes", "printable ASCII without spaces");
  }
  return keys;
}

void check_origins(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    if (serve::is_origin(origin)) continue;
    refuse(ErrorKind::kUsage, "--cors names no origin", "--cors", quote_text(origin),
           "a scheme, a host and perhaps a port as browsers send them, such as "
           "http://localhost:3000, or * for every site");
  }
}

/// An address as in a URL, [::1], is accepted, too.
void settle_host(std::string& host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty())
    refuse(ErrorKind::kUsage, "the address to listen on is empty", "--host", {},
           "an address or name of this machine", "--host 127.0.0.1, or 0.0.0.0 for all addresses");
}

void serve(ServeCommand& command) {
  settle_host(command.host);
  const std::vector<std::string> keys = all_keys(command);
  check_origins(command.origins);
  ServedModels models = load_models(command);
  serve::ChatServerOptions options{.max_new_tokens = command.max_new_tokens,
                                   .engine = {.batch = static_cast<size_t>(command.batch),
                                              .queue = static_cast<size_t>(command.queue)},
                                   .server = {}};
  options.server.access = {.keys = keys, .origins = command.origins};
  options.server.accept.request_time = std::chrono::seconds(command.request_time);
  options.server.threads =
      static_cast<size_t>(std::min(command.batch + command.queue, kThreads) + kMoreThreads);
  serve::EngineModel engine{models.infer.model, models.variants, nullptr, models.infer.dtype};
  if (models.adapters)
    engine.attach = [&models](size_t variant) { models.adapters->attach(variant); };
  serve::ChatServer server({engine, *models.infer.tokenizer}, options);
  if (!serve::is_loopback(command.host) && keys.empty())
    warning("whoever reaches " + command.host +
            " can use this server: it asks for no key (--api-key)");
  std::vector<std::string> names;
  for (const serve::Variant& variant : models.variants) names.push_back(variant.name);
  serve::serve(server, command.host, static_cast<int>(command.port), [&](int port) {
    const bool six = command.host.find(':') != std::string::npos;
    print_line(
        "serving " + join(names) + " at http://" + (six ? "[" + command.host + "]" : command.host) +
        ":" + std::to_string(port) +
        "/v1; Ctrl-C finishes the running answers and exits, a second one exits immediately");
  });
  notice("served: every accepted request has been answered");
}

void add_access_options(Command& command, ServeCommand& options) {
  command
      .option("--api-key", options.keys,
              "key that requests must have (Authorization: Bearer KEY); may be repeated; keys in "
              "the environment variable LFT_API_KEY, separated by commas, are not visible to other "
              "users of this machine")
      .one_each();
  command
      .option("--cors", options.origins,
              "origin whose pages may use the server from a browser, such as "
              "http://localhost:3000; may be repeated; *: all (default: none)")
      .one_each();
}

}  // namespace

void add_serve(Command& app) {
  Command command = app.subcommand(
      "serve", "serve OpenAI clients (chat completions with images), for trying a model");
  const auto options = std::make_shared<ServeCommand>();
  add_infer_options(command, options->infer, &options->adapters);
  command.option("--host", options->host, "address to listen on").show_default();
  command.option("--port", options->port, "port to listen on; 0: any free port")
      .show_default()
      .range(0, 65535);
  command.option("--name", options->name,
                 "name of the model in requests, of the base if there are several (default: the "
                 "name of the adapter's or the model's directory)");
  add_access_options(command, *options);
  command.option("--batch", options->batch, "maximum number of answers that are decoded together")
      .show_default()
      .range(1, 256);
  command.option("--queue", options->queue, "maximum number of waiting answers; one more gets 429")
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
