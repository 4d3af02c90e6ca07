// The documents name only existing things: test files in tests/README.md, messages and events in
// recipes/TROUBLESHOOTING.md, paths in all pages. One promise of tests/README.md is checked in the
// sources here.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "house/sources.h"

namespace lft::guides_test {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = LFT_SOURCE_DIR;

using house::slurp;

/// Test files that a line names between backticks: `folder/test_x.cpp`.
std::vector<std::string> test_files_of(const std::string& line) {
  static const std::regex span("`([A-Za-z0-9_/]+/[A-Za-z0-9_]+\\.(?:cpp|cc|py))`");
  std::vector<std::string> found;
  for (std::sregex_iterator it(line.begin(), line.end(), span), end; it != end; ++it)
    found.push_back((*it)[1]);
  return found;
}

/// Adjacent string literals are joined.
std::string joined_texts(const std::string& source) {
  static const std::regex seam("\"\\s*\n\\s*\"");
  return std::regex_replace(source, seam, "");
}

/// The texts between backticks, split at "...".
std::vector<std::string> quoted_parts(const std::string& text) {
  std::vector<std::string> parts;
  static const std::regex span("`([^`]+)`");
  for (std::sregex_iterator it(text.begin(), text.end(), span), end; it != end; ++it) {
    std::string rest = (*it)[1];
    while (!rest.empty()) {
      const size_t gap = std::min(rest.find("..."), rest.size());
      const std::string part = rest.substr(0, gap);
      const size_t first = part.find_first_not_of(' ');
      if (first != std::string::npos)
        parts.push_back(part.substr(first, part.find_last_not_of(' ') + 1 - first));
      rest = gap < rest.size() ? rest.substr(gap + 3) : "";
    }
  }
  return parts;
}

/// Names of the events that a source writes: event("name", ...) and event(c ? "name" : "name",
/// ...).
std::set<std::string> events_of(const std::string& source) {
  std::set<std::string> names;
  static const std::regex call("event\\(\\s*(?:\\w+ \\? \"(\\w+)\"\\s*:\\s*)?\"(\\w+)\"");
  for (std::sregex_iterator it(source.begin(), source.end(), call), end; it != end; ++it) {
    for (const int group : {1, 2}) {
      if ((*it)[group].matched) names.insert((*it)[group]);
    }
  }
  return names;
}

/// Paths of the tree that a page names between backticks or links to from the root. Placeholders
/// (<op>) and patterns (*) are left out.
std::set<std::string> paths_of(const std::string& page) {
  std::set<std::string> paths;
  static const std::regex path("[`(]((?:kernels|models|recipes|scripts|src|tests)/[^` ()#]*)");
  static const std::regex pair("(.*)\\{(\\w+),(\\w+)\\}");
  for (std::sregex_iterator it(page.begin(), page.end(), path), end; it != end; ++it) {
    const std::string found = (*it)[1];
    std::smatch both;
    if (found.find_first_of("<*") != std::string::npos) continue;
    if (std::regex_match(found, both, pair)) {
      paths.insert({both.str(1) + both.str(2), both.str(1) + both.str(3)});
    } else {
      paths.insert(found);
    }
  }
  return paths;
}

}  // namespace

TEST(Guides, EveryPromiseNamesFilesOfTestsThatAreThere) {
  const std::string page = slurp(kRoot / "tests/README.md");
  const size_t promises = page.find("## What is promised");
  ASSERT_NE(promises, std::string::npos);
  int rows = 0;
  for (const std::string& line : house::lines_of(page.substr(promises))) {
    if (!line.starts_with("| ") || line.starts_with("| promise ")) continue;
    ++rows;
    const std::vector<std::string> files = test_files_of(line.substr(line.rfind(" | ")));
    EXPECT_FALSE(files.empty()) << line;
    for (const std::string& file : files) EXPECT_TRUE(fs::exists(kRoot / "tests" / file)) << file;
  }
  EXPECT_GE(rows, 90);
}

TEST(Guides, TroubleshootingQuotesMessagesThatAreThere) {
  std::string sources;
  for (const std::string& file : house::sources_below(kRoot, {"kernels", "models", "src"}))
    sources += slurp(kRoot / file);
  sources = joined_texts(sources);
  int quoted = 0;
  for (const std::string& line : house::lines_of(slurp(kRoot / "recipes/TROUBLESHOOTING.md"))) {
    if (!line.starts_with("| `")) continue;
    for (const std::string& part : quoted_parts(line.substr(0, line.find(" | ")))) {
      ++quoted;
      EXPECT_NE(sources.find(part), std::string::npos) << "no source says: " << part;
    }
  }
  EXPECT_GE(quoted, 150);
}

TEST(Guides, TroubleshootingHasEveryEvent) {
  const std::string page = slurp(kRoot / "recipes/TROUBLESHOOTING.md");
  const std::string events = page.substr(page.find("## Events"));
  std::set<std::string> emitted;
  for (const std::string& file : house::sources_below(kRoot, {"src/train"}))
    emitted.merge(events_of(slurp(kRoot / file)));
  EXPECT_GE(emitted.size(), 13u);
  for (const std::string& event : emitted)
    EXPECT_NE(events.find("| `" + event + "` |"), std::string::npos) << event;
}

TEST(Guides, EveryPathOfAPageIsThere) {
  size_t paths = 0;
  for (const char* page :
       {"README.md", "recipes/README.md", "recipes/TROUBLESHOOTING.md", "recipes/FORMATS.md",
        "src/README.md", "scripts/README.md", "scripts/bench/README.md"}) {
    for (const std::string& path : paths_of(slurp(kRoot / page))) {
      ++paths;
      EXPECT_TRUE(fs::exists(kRoot / path)) << page << " names " << path;
    }
  }
  EXPECT_GE(paths, 100u);
}

TEST(Guides, PartsOfMessagesAndEventsAreRead) {
  EXPECT_EQ(joined_texts("\"one \"\n    \"text\""), "\"one text\"");
  EXPECT_EQ(test_files_of("| a `b.cpp` | `data/test_x.cpp`, `peers/test_y.py` |"),
            (std::vector<std::string>{"data/test_x.cpp", "peers/test_y.py"}));
  EXPECT_EQ(quoted_parts("| `a file ...`, `no ... at ...`"),
            (std::vector<std::string>{"a file", "no", "at"}));
  EXPECT_EQ(events_of("x.event(\"one\", 1); y_.event(\n  \"two\", 2); z.event(b ? \"three\" : "
                      "\"four\", 3, {{\"five\", 1}});"),
            (std::set<std::string>{"one", "two", "three", "four"}));
  EXPECT_EQ(paths_of("`src/a.cpp`, `src/x/<y>.h`, `models/b.{h,cpp}`, runs/c, [d](recipes/d.md#e), "
                     "`scripts/f --g`, `runs/h`, `tests/*.cpp`, `models/i/`"),
            (std::set<std::string>{"src/a.cpp", "models/b.h", "models/b.cpp", "recipes/d.md",
                                   "scripts/f", "models/i/"}));
}

TEST(Guides, TheCacheIsEmptiedBetweenTrainingAndEvaluationOnly) {
  std::set<std::string> callers;
  for (const char* folder : {"kernels", "models", "src"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string name = entry.path().filename();
      if (!entry.is_regular_file() || name == "device.cpp" || name == "device.h") continue;
      const std::string text = slurp(entry.path());
      if (text.find("empty_cache(") != std::string::npos ||
          text.find("emptyCache(") != std::string::npos)
        callers.insert(name);
    }
  }
  EXPECT_EQ(callers,
            (std::set<std::string>{"cuda_graph.cpp", "evaluations.cpp"}));  // where an arena begins
  const std::string source = slurp(kRoot / "src/train/run/evaluations.cpp");
  const size_t first = source.find("empty_cache("),
               evaluation = source.find("evaluate_shared(", first),
               second = source.find("empty_cache(", first + 1);
  EXPECT_LT(first, evaluation);
  EXPECT_LT(evaluation, second);
  EXPECT_EQ(source.find("empty_cache(", second + 1), std::string::npos);
}

}  // namespace lft::guides_test
