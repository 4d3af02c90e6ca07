// Hashes, text and signals.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace lft::base_test {
namespace {

// FIPS 180-2, appendix B.
constexpr const char* kOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kOfMillionA =
    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(Hash, KnownAnswers) {
  EXPECT_EQ(sha256("abc"), kOfAbc);
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), kOfMillionA);
  Sha256 hash;
  hash.update("a");
  hash.update("bc");
  EXPECT_EQ(hash.hex(), kOfAbc);
}

TEST(Hash, OfFiles) {
  const test::TempDir dir;
  EXPECT_EQ(sha256_file(dir.write("a", std::string(1'000'000, 'a'))), kOfMillionA);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "No such file", sha256_file(dir.file("missing")));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not a regular file", sha256_file(dir.path()));
  ASSERT_EQ(mkfifo(dir.file("pipe").c_str(), 0600), 0);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "not a regular file", sha256_file(dir.file("pipe")));
}

TEST(Text, EditDistance) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("ab", "ba"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("same", "same"), 0);
}

TEST(Text, ClosestNamesFindMisspellingsOnly) {
  const std::vector<std::string> fields = {"learning_rate", "lr", "batch_size", "grad_accum",
                                           "weight_decay"};
  EXPECT_EQ(closest_names("batchsize", fields).at(0), "batch_size");
  EXPECT_EQ(closest_names("wieght_decay", fields), std::vector<std::string>{"weight_decay"});
  EXPECT_TRUE(closest_names("zzzz", fields).empty());
  EXPECT_TRUE(closest_names("", fields).empty());
  EXPECT_TRUE(closest_names(std::string(100000, 'a'), fields).empty());
}

/// Quoted text is parsed by the shell itself.
TEST(Text, AShellReadsAWordBackAsItIs) {
  EXPECT_EQ(shell_word("runs/a-1_b/step-5"), "runs/a-1_b/step-5");
  for (const std::string word :
       {"", "a b", "it's", "$HOME", "`id`", "a\"b\\c", "x;y&z|(w)", "~", "*.json", "#1", "!!",
        "a\nb", "\u00e9", "k=v w", "a\tb'c\\", "\x1b[2J", "\xff\xfe", "\u202ex", "a\n"}) {
    const std::string quoted = shell_word(word);
    EXPECT_EQ(escape_text(quoted), quoted);  // as printed in a message
    FILE* const shell = popen(("exec bash <<'END'\nprintf %s " + quoted + "\nEND\n").c_str(), "r");
    ASSERT_NE(shell, nullptr);
    char read[64];
    const size_t length = std::fread(read, 1, sizeof read, shell);
    EXPECT_EQ(pclose(shell), 0);
    EXPECT_EQ(std::string(read, length), word);
  }
}

TEST(Text, JoinCountsWhatItLeavesOut) {
  EXPECT_EQ(join({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(join({"a", "b", "c"}, ", ", 1), "a, and 2 more");
  EXPECT_EQ(join({}), "");
}

/// Runs `body` in a child and returns its wait status.
int status_of_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(Signals, TheFirstSetsTheFlagAndTheSecondLeavesAtOnce) {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    const int once = status_of_child([&] {
      install_signal_handlers();
      if (requested_signal() != 0) _exit(90);
      raise(number);
      _exit(requested_signal() == number ? 7 : 91);
    });
    EXPECT_EQ(WEXITSTATUS(once), 7);
    const int twice = status_of_child([&] {
      install_signal_handlers();
      raise(SIGUSR1);
      raise(number);
    });
    EXPECT_EQ(WEXITSTATUS(twice), 128 + number);
  }
}

TEST(Signals, ABrokenPipeIsNoDeath) {
  const int status = status_of_child([] {
    install_signal_handlers();
    int ends[2];
    if (pipe(ends) != 0) _exit(90);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    notice("nobody reads this");
    _exit(7);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Signals, ExitCodes) {
  EXPECT_EQ(stop_exit_code(SIGINT), 130);
  EXPECT_EQ(stop_exit_code(SIGTERM), 75);
  EXPECT_EQ(stop_exit_code(SIGUSR1), 75);
}

TEST(Text, JoinedNamesCannotBreakALine) {
  EXPECT_EQ(join_names({"a", "b\nerror: forged", "c"}, 2), "a, b\\nerror: forged, and 1 more");
}

TEST(Log, LinesAreEscapedAndMarked) {
  testing::internal::CaptureStderr();
  notice("plain \x1b[31m");
  notice("id\nerror: forged");
  warning("careful");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "plain \\x1b[31m\nid\\nerror: forged\nwarning: careful\n");
}

}  // namespace
}  // namespace lft::base_test
