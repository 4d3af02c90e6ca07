// Guarantee J1: no command opens a socket, starts another program, writes outside its output
// path, creates a file whose name comes from data, or changes the environment next to other threads
// (environment_shim.cpp). `lft debug determinism`, `lft verify-resume` and `lft sweep` are
// excluded: they start lft itself, by /proc/self/exe.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/socket.h>

#include "debug/stored_model.h"
#include "faults/snapshot.h"
#include "faults/watched.h"
#include "train/run_files.h"

namespace lft::test::no_surprises_test {
using namespace lft::io;
using namespace lft::recipe;
namespace {

namespace fs = std::filesystem;

/// A folder with everything that a run reads, an empty HOME, TMPDIR and working directory, and
/// outs/ for its output.
class NoSurprises : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string missing = unwatchable();
    if (!missing.empty()) GTEST_SKIP() << "not watched: " << missing;
    for (const char* folder : {"home", "tmp", "cwd", "outs", "no-driver"})
      fs::create_directory(path(folder));
    // The actions of a GPU driver are not lft's: the driver is hidden, and the
    // runs use the CPU.
    run_.dir().write("no-driver/libcuda.so.1", "not a library");
  }

  std::string path(const std::string& name) const { return run_.dir().file(name); }
  std::string out(const std::string& name) const { return path("outs/" + name); }
  Recipe recipe() const {
    Recipe recipe = run_.recipe("outs/run");
    recipe.train.max_steps = 3;
    recipe.train.eval_every_steps = 2;
    recipe.checkpoint = {.every_steps = 2, .keep = 2, .at_step_zero = true};
    return recipe;
  }
  std::string write_recipe(const Recipe& recipe) const {
    return run_.dir().write("run.yaml", dump_recipe(recipe));
  }

  WatchedCommand command(const std::vector<std::string>& arguments) const {
    const char* const libraries = std::getenv("LD_LIBRARY_PATH");
    return {
        .arguments = arguments,
        .environment = {"HOME=" + path("home"), "TMPDIR=" + path("tmp"), "PATH=/usr/bin:/bin",
                        "OMP_NUM_THREADS=1",
                        "LD_PRELOAD=" LFT_BINARY_DIR "/tests/liblft_environment_shim.so",
                        "LD_LIBRARY_PATH=" + path("no-driver") +
                            (libraries == nullptr ? "" : ":" + std::string(libraries)),
                        "ASAN_OPTIONS=detect_leaks=0"},  // the leak checker would also be a tracer
        .folder = path("cwd")};
  }

  /// outs/<output> with everything below it, and the temporary names next to it that are used until
  /// it is complete.
  bool is_output(const std::string& file, const std::string& output) const {
    const std::string outs = path("outs/");
    if (output.empty() || !file.starts_with(outs)) return false;
    const std::string name = file.substr(outs.size(), file.find('/', outs.size()) - outs.size());
    return name == output || name == ".tmp-" + output || name == ".dead-" + output ||
           name.starts_with(output + ".tmp-");
  }

  struct Result {
    Watched ran;
    std::vector<std::string> surprises;
  };
  /// Runs it; `output`, a name in outs/, is the only writable path.
  Result watch_all(const WatchedCommand& command, const std::string& output) const {
    const auto left_out =
        [&](const std::string& file) {  // a new entry changes the times of its folder
          return file == out(output) || file.starts_with(out(output) + "/") ||
                 (!output.empty() && file == path("outs"));
        };
    const Snapshot before = snapshot(run_.dir().path(), left_out);
    Result result{.ran = watch(command), .surprises = {}};
    result.surprises = changes(before, snapshot(run_.dir().path(), left_out));
    if (result.ran.forbidden)
      result.surprises.push_back("ended by SIGSYS: a socket, or another program");
    if (result.ran.left > 0) result.surprises.push_back("a process outlives it");
    for (const FileCall& call : result.ran.calls) {
      const bool harmless =
          call.path == "/dev/null" ||
          call.path == "/proc/self/clear_refs";  // the latter resets the peak of memory
      if (call.changes && !harmless && !is_output(call.path, output))
        result.surprises.push_back("written: " + call.path);
    }
    return result;
  }

  Watched lft(std::vector<std::string> arguments, const std::string& output, int code = 0,
              int forks = 0) const {
    arguments.insert(arguments.begin(), LFT_BINARY_DIR "/lft");
    Result result = watch_all(command(arguments), output);
    EXPECT_EQ(result.ran.code, code) << arguments[1] << "\n" << result.ran.err;
    EXPECT_EQ(result.surprises, std::vector<std::string>{}) << arguments[1];
    EXPECT_GT(result.ran.calls.size(), 10u) << arguments[1];  // at least its libraries
    EXPECT_EQ(result.ran.forks, forks) << arguments[1];
    return std::move(result.ran);
  }

  const TinyRun run_;
};

TEST_F(NoSurprises, InCommandsThatWriteNothing) {
  const std::string file = write_recipe(recipe());
  for (const char* command : {"check", "validate", "preview"}) lft({command, file}, "");
  lft({"check", file, "--set", "data.on_bad_sample=skip", "--set", "precision.compute=bf16"}, "");
  lft({"summary", run_.model()}, "");
  lft({"generate", "--model", run_.model(), "--image", path("images/red0.bmp"), "--prompt", "What?",
       "--max-new-tokens", "2"},
      "");
  lft({"eval", "--model", run_.model(), "--data", path("rows.json"), "--image-root", path("images"),
       "--max-new-tokens", "2"},
      "");
  lft({"recipe", "fields"}, "");
  lft({"recipe", "fields", "optim"}, "");
  lft({"doctor"}, "");
  lft({"--version"}, "");
}

TEST_F(NoSurprises, InARunFromCheckToMerge) {
  const std::string file = write_recipe(recipe()), adapter = out("run/adapter");
  lft({"train", file}, "run");
  EXPECT_EQ(step_lines(out("run")).size(), 3u);
  lft({"train", file, "--resume", "--set", "train.max_steps=5"}, "run");
  EXPECT_EQ(step_lines(out("run")).size(), 5u);
  EXPECT_TRUE(fs::exists(out("run/report.html")));
  lft({"checkpoint", "verify", out("run")}, "");
  lft({"runs", path("outs")}, "");
  lft({"runs", "best", path("outs")}, "");
  lft({"status", out("run")}, "");
  lft({"generate", out("run"), "--prompt", "What?", "--max-new-tokens", "2"}, "");
  lft({"eval", out("run"), "--max-new-tokens", "2"}, "");
  lft({"merge", "--adapter", adapter, "--out", out("merged")}, "merged");
  lft({"export", adapter, "--target", "peft", "--check"}, "");
  lft({"export", adapter, "--target", "peft", "--out", out("exported")}, "exported");
  lft({"generate", "--model", out("merged"), "--image", path("images/red0.bmp"), "--prompt",
       "What?", "--max-new-tokens", "2"},
      "");
  lft({"eval", file, "--out", out("answers.jsonl"), "--max-new-tokens", "2"}, "answers.jsonl");
  const std::vector<std::string> data = {"--data", path("rows.json"), "--image-root",
                                         path("images")};
  lft({"score", "--model", run_.model(), "--adapter", adapter, data[0], data[1], data[2], data[3],
       "--out", out("scores.jsonl")},
      "scores.jsonl");
  lft({"prepare", file, "--out", out("prepared")}, "prepared");
  lft({"check", file, "--set", "data.train=" + out("prepared"), "--set",
       "output_dir=" + out("next")},
      "");
  lft({"preview", file, "--html", out("rows.html")}, "rows.html");
  lft({"recipe", "cp", "quickstart", out("copy.yaml")}, "copy.yaml");
}

TEST_F(NoSurprises, InTheDebugCommands) {
  const std::string file = write_recipe(recipe());
  lft({"debug", "nan", file}, "");
  lft({"debug", "memory", file, "--steps", "2", "--out", out("memory.html")}, "memory.html");
  lft({"debug", "overfit", file, "--steps", "3", "--out", out("overfit")}, "overfit",
      5);  // too few to learn anything
  lft({"debug", "bare", file, "--steps", "3"}, "run");
  EXPECT_FALSE(fs::exists(out("run")));
  lft({"debug", "subset", file, "-n", "4"}, "run");
  const std::string subset = out("run/debug-subset-4");
  lft({"debug", "weights", subset, run_.model()}, "");
  lft({"debug", "base", run_.model()}, "");
  lft({"debug", "diff", subset, subset}, "");
}

/// The library that reads tokenizer.model runs in a child first; that child is not another
/// program.
TEST_F(NoSurprises, InTheProbeOfATokenizer) {
  write_tiny_llava(run_.model(), {.image_token = 620, .vocab = 624, .max_positions = 512});
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::remove(path("model/") + name);
  fs::copy(LFT_SOURCE_DIR "/tests/goldens/tokenizers/model_only", run_.model());
  lft({"check", write_recipe(recipe())}, "", 0, /*forks=*/1);
}

TEST_F(NoSurprises, WhereNoInputCanBeWritten) {
  const std::string file = write_recipe(recipe());
  std::vector<fs::path> inputs = {path("model"), path("images"), path("rows.json"), file,
                                  path("home"),  path("tmp"),    path("cwd")};
  for (const char* folder : {"model", "images"}) {
    for (const auto& entry : fs::directory_iterator(path(folder))) inputs.push_back(entry.path());
  }
  const auto set_writable =
      [&](bool writable) {  // root may write anyway: then only the tracer detects it
        for (const fs::path& input : inputs) {
          fs::permissions(input, fs::perms::owner_write,
                          writable ? fs::perm_options::add : fs::perm_options::remove);
        }
      };
  set_writable(false);
  lft({"check", file}, "");
  lft({"train", file}, "run");
  lft({"merge", "--adapter", out("run/adapter"), "--out", out("merged")}, "merged");
  set_writable(true);
}

/// Rows whose ids and images would be paths or separate lines if they were used
/// as names.
class HostileNames : public NoSurprises {
 protected:
  static constexpr char kMark[] = "h0stile";
  void SetUp() override {
    NoSurprises::SetUp();
    if (IsSkipped()) return;
    const std::string image = bmp(20, 18, 200, 9, 9);
    run_.dir().write("secret/h0stile.bmp", image);
    run_.dir().write("images/h0stile\n\x1b[31m.bmp", image);  // an ordinary image
    fs::create_symlink("../secret/h0stile.bmp", path("images/link.bmp"));
    const std::string ids[] = {"../../h0stile",   path("secret/h0stile"),
                               "h0stile\nline",   "\x1b[31mh0stile\x1b[0m",
                               "h0stile/../../x", std::string(5000, 'h') + "0stile"};
    Json rows = Json::array();
    for (const std::string& id : ids)
      rows.push_back(row(id, rows.size() % 2 == 0 ? "red0.bmp" : "h0stile\n\x1b[31m.bmp"));
    run_.dir().write("good.json", rows.dump());
    for (const std::string& name :
         {std::string("../secret/h0stile.bmp"), path("secret/h0stile.bmp"), std::string("link.bmp"),
          std::string("red0.bmp/../../secret/h0stile.bmp"), std::string("file:///h0stile")}) {
      rows.push_back(row("bad h0stile", name));
    }
    run_.dir().write("rows.json", rows.dump());
  }
  static Json row(const std::string& id, const std::string& image) {
    return {
        {"id", id},
        {"image", image},
        {"conversations",
         {{{"from", "human"}, {"value", "<image>\nWhat?"}}, {{"from", "gpt"}, {"value", "red"}}}}};
  }
  Recipe hostile_recipe() const {
    Recipe recipe = NoSurprises::recipe();
    recipe.data.on_bad_sample = "skip";
    return recipe;
  }
  Watched lft(const std::vector<std::string>& arguments, const std::string& output,
              int code = 0) const {
    Watched ran = NoSurprises::lft(arguments, output, code);
    EXPECT_FALSE(ran.names("/secret/")) << arguments[0];  // outside the image root
    for (const FileCall& call : ran.calls) {
      if (!call.changes) continue;
      EXPECT_EQ(call.path.find(kMark), std::string::npos) << call.path;
      EXPECT_TRUE(std::none_of(call.path.begin(), call.path.end(), [](unsigned char c) {
        return c < 0x20;
      })) << call.path;
    }
    for (const std::string& text : {ran.out, ran.err})
      EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
    return ran;
  }
};
constexpr char HostileNames::kMark[];

TEST_F(HostileNames, NameNoFileOfARun) {
  const std::string file = write_recipe(hostile_recipe());
  lft({"train", file}, "run");
  EXPECT_NE(slurp(out("run/metrics.jsonl")).find(kMark),
            std::string::npos);  // in file contents they are allowed
  lft({"train", file, "--resume", "--set", "train.max_steps=5"}, "run");
  lft({"prepare", file, "--out", out("prepared")}, "prepared");
  lft({"eval", file, "--data", path("good.json"), "--out", out("answers.jsonl"), "--max-new-tokens",
       "2"},
      "answers.jsonl");
  lft({"eval", file, "--out", out("skipped.jsonl"), "--max-new-tokens", "2"}, "skipped.jsonl");
  const std::string strict = "data.on_bad_sample=error";
  lft({"eval", file, "--out", out("none.jsonl"), "--max-new-tokens", "2", "--set", strict},
      "none.jsonl", 3);
  lft({"preview", file, "-n", "20", "--html", out("rows.html")}, "rows.html");
  lft({"validate", file}, "");
  lft({"validate", file, "--set", strict}, "", 3);
  lft({"check", file, "--set", strict, "--set", "output_dir=" + out("next")}, "", 3);
}

TEST_F(HostileNames, NameNoFileOfAnIncident) {
  change_model(run_, [](StoredTensors& tensors) { scale_mlp(tensors, 1, 0x1p20f); });
  Recipe recipe = hostile_recipe();
  recipe.model.base_dtype = "fp32";
  recipe.precision.compute = "fp16";
  lft({"train", write_recipe(recipe)}, "run");
  const std::string incident = out("run/incidents/step-1");
  EXPECT_NE(slurp(incident + "/incident.json").find(kMark), std::string::npos);
  lft({"replay", incident}, "", 5);
}

TEST_F(HostileNames, NameNoShardOfAMergedModel) {
  lft({"train", write_recipe(hostile_recipe())}, "run");
  fs::rename(path("model/model.safetensors"), path("secret/h0stile.safetensors"));
  Json map = Json::object();
  for (const auto& [name, tensor] :
       tiny_llava_tensors({.image_token = 260, .vocab = 264, .max_positions = 512})) {
    map[name] = "../secret/h0stile.safetensors";
  }
  run_.dir().write("model/model.safetensors.index.json",
                   Json{{"metadata", Json::object()}, {"weight_map", map}}.dump());
  lft({"merge", "--adapter", out("run/adapter"), "--out", out("merged")}, "merged", 3);
  EXPECT_FALSE(fs::exists(out("merged")));
}

/// Violations are planted, and found.
class Watch : public NoSurprises {
 protected:
  Result shell(const std::string& line, const std::string& output = "") const {
    return watch_all(command({"/bin/sh", "-c", line}), output);
  }
  Result function(const std::function<void()>& body, const std::string& output = "") const {
    WatchedCommand with_body = command({});
    with_body.body = body;
    return watch_all(with_body, output);
  }
  static void expect_killed(const Result& result, const std::string& what) {
    EXPECT_EQ(result.ran.code, 128 + SIGSYS) << what;
    EXPECT_TRUE(result.ran.forbidden) << what;
    EXPECT_FALSE(result.surprises.empty()) << what;
  }
};

TEST_F(Watch, LetsAProgramStartAndWriteItsOutput) {
  const Result result = shell(": > ../outs/given && : > ../outs/given.tmp-1", "given");
  EXPECT_EQ(result.ran.code, 0) << result.ran.err;
  EXPECT_EQ(result.surprises,
            std::vector<std::string>{"new: " + out("given.tmp-1")});  // left behind
}

TEST_F(Watch, ASocketEndsTheProgram) {
  for (const int domain : {AF_INET, AF_INET6, AF_NETLINK, AF_UNIX}) {
    const Result result =
        function([domain] { close(socket(domain, SOCK_DGRAM | SOCK_CLOEXEC, 0)); });
    expect_killed(result, "domain " + std::to_string(domain));
  }
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  expect_killed(function([&] { (void)connect(pair[0], to, sizeof address); }), "connect");
  expect_killed(function([&] { (void)bind(pair[0], to, sizeof address); }), "bind");
  expect_killed(function([&] { (void)sendto(pair[0], "x", 1, 0, to, sizeof address); }), "sendto");
  for (const int end : pair) close(end);
}

TEST_F(Watch, AnotherProgramEndsIt) {
  char program[] = "/bin/true";
  char* const argv[] = {program, nullptr};
  char* const envp[] = {nullptr};
  expect_killed(function([&] { execve(program, argv, envp); }), "execve");
  expect_killed(function([&] { fexecve(open(program, O_RDONLY), argv, envp); }), "execveat");
  expect_killed(shell("exec /bin/true"), "the shell's own execve");
}

TEST_F(Watch, AnotherProgramOfAChildIsSeenThoughTheParentGoesOn) {
  for (const Result& result :
       {shell("/bin/true; exit 0"), function([] { (void)!system("true"); }), function([] {
          char program[] = "/bin/true";
          char* const argv[] = {program, nullptr};
          pid_t child = 0;
          posix_spawn(&child, program, nullptr, nullptr, argv, nullptr);
          waitpid(child, nullptr, 0);
        })}) {
    EXPECT_EQ(result.ran.code, 0);
    EXPECT_EQ(result.ran.forks, 1);
    EXPECT_TRUE(result.ran.forbidden);
    EXPECT_FALSE(result.surprises.empty());
  }
}

TEST_F(Watch, AProcessLeftBehindIsSeenAndEnded) {
  const Result result = function([] {
    if (fork() == 0) pause();
  });
  EXPECT_EQ(result.ran.code, 0);
  EXPECT_EQ(result.surprises, std::vector<std::string>{"a process outlives it"});
}

TEST_F(Watch, AWriteElsewhereIsSeen) {
  const std::string file = path("tmp/x");
  const std::string written = "written: " + file, folder = "changed: " + path("tmp");
  EXPECT_EQ(shell(": > ../tmp/x", "given").surprises,
            (std::vector<std::string>{folder, "new: " + file, written}));
  EXPECT_EQ(function([&] { unlink(file.c_str()); }).surprises,
            (std::vector<std::string>{folder, "gone: " + file, written}));
  const auto make_and_remove = [&] {  // in a child, by a folder's number
    if (fork() != 0) return (void)wait(nullptr);
    const int at = open("../tmp", O_RDONLY | O_DIRECTORY);
    close(openat(at, "x", O_CREAT | O_WRONLY, 0600));
    unlinkat(at, "x", 0);
    _exit(0);
  };
  EXPECT_EQ(function(make_and_remove).surprises,
            (std::vector<std::string>{folder, written, written}));
  EXPECT_EQ(function([&] { (void)!rename("../rows.json", file.c_str()); }).surprises.size(),
            6u);  // two names, two folders, both in the call
  EXPECT_EQ(shell(": > ../model/config.json").surprises,
            (std::vector<std::string>{"changed: " + path("model/config.json"),
                                      "written: " + path("model/config.json")}));
}

TEST_F(Watch, AnOutputThatIsALinkIsWhereItLeads) {
  fs::create_directory_symlink(path("home"), out("given"));
  const std::vector<std::string> surprises = shell(": > ../outs/given/x", "given").surprises;
  EXPECT_NE(std::find(surprises.begin(), surprises.end(), "written: " + path("home/x")),
            surprises.end());
}

}  // namespace
}  // namespace lft::test::no_surprises_test
