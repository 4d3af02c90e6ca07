// lft as tools.py starts it: loading LibTorch takes half a second, longer than most commands take,
// so it is loaded once, and each command runs in a forked copy of this process, which has no other
// thread.
//   LFT_COMMAND_SOCKET=FD lft_command_server    FD: one end of a pair of SOCK_SEQPACKET sockets
// A request is {"arguments": [...], "environment": {...}, "folder": "..."} with the descriptors of
// the command's stdin, stdout and stderr; the reply is its wait status, an int. Without the
// variable, the program is lft: a command that starts other processes finds it there.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "src/cli/program.h"
#include "src/io/json.h"

namespace {

constexpr char kSocket[] = "LFT_COMMAND_SOCKET";

struct Request {
  lft::io::Json json;
  std::array<int, 3> streams{};
};

/// False when the other end is closed.
bool receive(int socket, Request& request) {
  std::string text(1 << 20, '\0');
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof request.streams)> control{};
  iovec part{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = recvmsg(socket, &message, 0);
  const cmsghdr* const sent = CMSG_FIRSTHDR(&message);
  if (size <= 0 || sent == nullptr || sent->cmsg_len != CMSG_LEN(sizeof request.streams))
    return false;
  std::memcpy(request.streams.data(), CMSG_DATA(sent), sizeof request.streams);
  request.json = lft::io::Json::parse(text.substr(0, static_cast<size_t>(size)));
  return true;
}

int run(const Request& request) {
  for (int stream = 0; stream < 3; ++stream) {
    if (dup2(request.streams[static_cast<size_t>(stream)], stream) < 0) return 127;
    close(request.streams[static_cast<size_t>(stream)]);
  }
  if (chdir(request.json.at("folder").get<std::string>().c_str()) != 0) return 127;
  clearenv();
  for (const auto& [name, value] : request.json.at("environment").items())
    setenv(name.c_str(), value.get<std::string>().c_str(), /*overwrite=*/1);
  auto arguments = request.json.at("arguments").get<std::vector<std::string>>();
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  return lft::cli::run_program(static_cast<int>(arguments.size()), pointers.data());
}

int serve(int socket) {
  for (Request request; receive(socket, request);) {
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
      close(socket);
      return run(request);
    }
    for (const int stream : request.streams) close(stream);
    int status = 0;
    if (waitpid(child, &status, 0) != child) return 1;
    if (send(socket, &status, sizeof status, MSG_NOSIGNAL) != sizeof status) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const socket = std::getenv(kSocket);
  return socket == nullptr ? lft::cli::run_program(argc, argv) : serve(std::atoi(socket));
}
