// The project's rules for source files, which no compiler checks: folders of limited size, a
// header for every source, readable lines, and one definition of every name.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "house/sources.h"
#include "support/temp_dir.h"

namespace lft::sources_test {
namespace {

namespace fs = std::filesystem;
using Faults = std::vector<std::string>;

const fs::path kRoot = LFT_SOURCE_DIR;
constexpr size_t kMostSources = 40;  // per folder
constexpr size_t kMostColumns = 100;

/// src/cli has one file per command and no smaller unit to split it into.
bool is_apart(const std::string& folder) { return folder == "src/cli"; }

Faults crowded_folders(const fs::path& root) {
  std::map<std::string, size_t> count;
  for (const std::string& file : house::sources_below(root, {"kernels", "models", "src", "tests"}))
    ++count[house::folder_of(file)];
  Faults faults;
  for (const auto& [folder, sources] : count) {
    if (sources > kMostSources && !is_apart(folder))
      faults.push_back(folder + " holds " + std::to_string(sources) + " sources, more than " +
                       std::to_string(kMostSources));
  }
  return faults;
}

/// x.cpp with x.h, or a part of y.h named y_x.cpp.
Faults sources_without_header(const fs::path& root) {
  const std::vector<std::string> files = house::sources_below(root, {"models", "src"});
  std::map<std::string, std::vector<std::string>> headers;  // stems, by folder
  for (const std::string& file : files) {
    if (file.ends_with(".h")) headers[house::folder_of(file)].push_back(fs::path(file).stem());
  }
  Faults faults;
  for (const std::string& file : files) {
    const std::string folder = house::folder_of(file), stem = fs::path(file).stem();
    if (file.ends_with(".h") || is_apart(folder)) continue;
    const auto owns = [&](const std::string& header) {
      return stem == header || stem.starts_with(header + "_");
    };
    if (std::none_of(headers[folder].begin(), headers[folder].end(), owns)) faults.push_back(file);
  }
  return faults;
}

/// In characters: continuation bytes (10xxxxxx) are not counted.
size_t columns(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

/// Hand-written text, except Markdown, whose tables have long rows, and test inputs.
bool is_written(const std::string& file) {
  static const std::set<std::string> kinds = {".h",   ".cpp",  ".cu", ".cuh",   ".py",  ".js",
                                              ".css", ".html", ".in", ".cmake", ".yaml"};
  const fs::path path(file);
  if (file.starts_with("tests/fuzz/corpus/")) return false;
  if (file.starts_with("tests/goldens/") && path.extension() != ".py") return false;
  return kinds.contains(path.extension()) || path.filename() == "CMakeLists.txt" ||
         path.filename() == "Dockerfile" || (file.starts_with("scripts/") && !path.has_extension());
}

Faults long_lines(const fs::path& root) {
  Faults faults;
  for (const std::string& file : house::files_below(
           root, {"kernels", "models", "recipes", "scripts", "src", "tests"}, is_written)) {
    int number = 0;
    for (const std::string& line : house::lines_of(house::slurp(root / file))) {
      ++number;
      if (columns(line) > kMostColumns)
        faults.push_back(file + ":" + std::to_string(number) + " has " +
                         std::to_string(columns(line)) + " columns");
    }
  }
  return faults;
}

/// Headers below models/x and src/x whose first namespace is not lft::x. kernels, models/base and
/// src/base, which all others use, are lft; a header with only macros has none.
Faults foreign_namespaces(const fs::path& root) {
  Faults faults;
  for (const std::string& file : house::sources_below(root, {"models", "src"})) {
    if (!file.ends_with(".h")) continue;
    const size_t first = file.find('/'), second = file.find('/', first + 1);
    const std::string folder = file.substr(first + 1, second - first - 1);
    const std::string own = folder == "base" ? "namespace lft {" : "namespace lft::" + folder;
    const std::string code = house::plain_code(house::slurp(root / file));
    const size_t at = code.find("namespace lft");
    if (at == std::string::npos) continue;
    const std::string found = code.substr(at, code.find('\n', at) - at);
    if (found != own && !found.starts_with(own + " ") && !found.starts_with(own + "::"))
      faults.push_back(file + " is in " + found);
  }
  return faults;
}

/// Sources of one library may be compiled as one unit (unity batches), which merges their
/// anonymous namespaces.
std::string library_of(const std::string& file) {
  const size_t first = file.find('/'), second = file.find('/', first + 1);
  return file.substr(0, file.starts_with("src/") ? second : first);
}

Faults double_definitions(const fs::path& root) {
  std::map<std::string, std::set<std::string>> places;
  for (const std::string& file : house::sources_below(root, {"models", "src"})) {
    for (const std::string& name : house::definitions(house::slurp(root / file))) {
      const bool anonymous = name.find("(anonymous)") != std::string::npos;
      places[anonymous ? name + " of " + library_of(file) : name].insert(file);
    }
  }
  Faults faults;
  for (const auto& [name, files] : places) {
    if (files.size() < 2) continue;
    std::string fault = name + " is defined in";
    for (const std::string& file : files) fault += " " + file;
    faults.push_back(fault);
  }
  return faults;
}

/// The constants that a file defines at namespace scope, by the first line of their definition.
std::set<std::string> constants_of(const std::string& text) {
  static const std::regex definition("\\b(k[A-Z]\\w*)\\s*[=\\[{]");
  std::set<std::string> names;
  for (const std::string& line : house::lines_of(house::plain_code(text))) {
    if (!line.starts_with("const") && !line.starts_with("inline const")) continue;
    for (std::sregex_iterator at(line.begin(), line.end(), definition), end; at != end; ++at)
      names.insert((*at)[1]);
  }
  return names;
}

/// Constants of sources with the name of a header's in the namespace lft: in a unity build, they
/// would replace it, without an error, in the sources that follow.
Faults hidden_constants(const fs::path& root) {
  std::map<std::string, std::string> headers;  // by constant
  for (const std::string& file : house::sources_below(root, {"kernels", "models/base", "src/base"}))
    if (file.ends_with(".h"))
      for (const std::string& name : constants_of(house::slurp(root / file))) headers[name] = file;
  Faults faults;
  for (const std::string& file : house::sources_below(root, {"models", "src"})) {
    if (!file.ends_with(".cpp")) continue;
    for (const std::string& name : constants_of(house::slurp(root / file)))
      if (const auto found = headers.find(name); found != headers.end())
        faults.push_back(name + " of " + file + " hides that of " + found->second);
  }
  return faults;
}

/// Functions that a header declares and that are defined in a source which neither has the header's
/// name nor begins with it. src/cli/commands.h lists the commands, which have a file each.
Faults functions_defined_elsewhere(const fs::path& root) {
  std::map<std::string, std::set<std::string>> headers;  // by function
  std::map<std::string, std::set<std::string>> sources;
  for (const std::string& file : house::sources_below(root, {"kernels", "models", "src"})) {
    const house::Functions functions = house::functions_of(house::slurp(root / file));
    const bool is_header = file.ends_with(".h") || file.ends_with(".cuh");
    if (file == "src/cli/commands.h") continue;
    for (const std::string& name : is_header ? functions.declared : functions.defined)
      (is_header ? headers : sources)[name].insert(file);
  }
  Faults faults;
  for (const auto& [name, files] : sources) {
    const auto found = headers.find(name);
    if (found == headers.end() || name.find("(anonymous)") != std::string::npos) continue;
    for (const std::string& file : files) {
      const auto owns = [&](const std::string& header) {
        const std::string stem = header.substr(0, header.rfind('.'));
        return file.starts_with(stem + ".") || file.starts_with(stem + "_");
      };
      if (std::none_of(found->second.begin(), found->second.end(), owns))
        faults.push_back(name + " of " + *found->second.begin() + " is defined in " + file);
    }
  }
  return faults;
}

}  // namespace

/// A test folder that belongs to no program would never run.
TEST(Sources, EveryFolderOfTestsIsAProgram) {
  const std::string lists = house::slurp(kRoot / "tests/CMakeLists.txt");
  int folders = 0;
  for (const auto& entry : fs::directory_iterator(kRoot / "tests")) {
    if (!entry.is_directory()) continue;
    const auto files = fs::recursive_directory_iterator(entry.path());
    const bool has_tests =
        std::any_of(begin(files), end(files), [](const fs::directory_entry& file) {
          return file.path().extension() == ".cpp" &&
                 file.path().filename().string().starts_with("test_");
        });
    if (!has_tests) continue;
    ++folders;
    const std::string name = entry.path().filename();
    EXPECT_TRUE(lists.find("lft_test(" + name + " ") != std::string::npos ||
                lists.find("lft_test(" + name + ")") != std::string::npos ||
                lists.find("/" + name + "/test_*.cpp") != std::string::npos)
        << "tests/" << name << " is in no program of tests/CMakeLists.txt";
  }
  EXPECT_GT(folders, 15);
}

TEST(Sources, NoFolderHoldsMoreThanCanBeLookedOver) { EXPECT_EQ(crowded_folders(kRoot), Faults()); }

TEST(Sources, EverySourceHasAHeaderOfItsNameOrIsAPartOfOne) {
  EXPECT_EQ(sources_without_header(kRoot), Faults());
}

TEST(Sources, NoLineIsLongerThanAHundredColumns) { EXPECT_EQ(long_lines(kRoot), Faults()); }

TEST(Sources, EveryTypeIsDefinedOnce) { EXPECT_EQ(double_definitions(kRoot), Faults()); }

TEST(Sources, NoConstantHidesAHeaders) { EXPECT_EQ(hidden_constants(kRoot), Faults()); }

TEST(Sources, AConstantThatHidesAHeadersIsNamed) {
  test::TempDir tree;
  tree.write("kernels/common/chunks.h", "namespace lft {\nconstexpr int kChunk = 8;\n}\n");
  tree.write("models/ops/a.cpp", "namespace lft::ops {\nint f() { return kChunk; }\n}\n");
  EXPECT_EQ(hidden_constants(tree.path()), Faults());
  tree.write("models/ops/b.cpp",
             "namespace lft::ops {\nnamespace {\nconstexpr int kOther = 1, kChunk = 64;\n}\n}\n");
  EXPECT_EQ(hidden_constants(tree.path()),
            Faults{"kChunk of models/ops/b.cpp hides that of kernels/common/chunks.h"});
}

TEST(Sources, EveryFunctionIsDefinedInTheSourceOfItsHeader) {
  EXPECT_EQ(functions_defined_elsewhere(kRoot), Faults());
}

TEST(Sources, AFunctionThatIsDefinedElsewhereIsNamed) {
  test::TempDir tree;
  tree.write("src/io/a.h",
             "namespace lft::io {\nint one(int x = f(1));\nstruct A {\n  A();\n  int two() const;\n"
             "  int three() { return 3; }\n};\n}\n");
  tree.write("src/io/a.cpp", "namespace lft::io {\nint one(int x) { return x; }\n}\n");
  tree.write("src/io/a_part.cpp",
             "namespace lft::io {\nnamespace {\nint one() { return 1; }\n}\n"
             "A::A() : x(1), y{2} { go(); }\n}\n");
  EXPECT_EQ(functions_defined_elsewhere(tree.path()), Faults());
  tree.write(
      "src/io/b.cpp",
      "namespace lft::io {\nint one(int x) { return x; }\nint A::two() const { return 2; }\n}\n");
  EXPECT_EQ(functions_defined_elsewhere(tree.path()),
            (Faults{"lft::io::A::two of src/io/a.h is defined in src/io/b.cpp",
                    "lft::io::one of src/io/a.h is defined in src/io/b.cpp"}));
}

TEST(Sources, EveryFolderHasItsNamespace) { EXPECT_EQ(foreign_namespaces(kRoot), Faults()); }

TEST(Sources, AHeaderOfAnotherNamespaceIsNamed) {
  test::TempDir tree;
  tree.write("src/train/run/a.h", "// namespace lft\n#pragma once\nnamespace lft::train {\n}\n");
  tree.write("models/ops/core/loops.h", "namespace lft::ops::loops {\n}\n");
  tree.write("src/base/b.h", "namespace lft {\n}\n");
  tree.write("src/io/macros.h", "#define A namespace lft\n");
  EXPECT_EQ(foreign_namespaces(tree.path()), Faults());
  tree.write("src/train/run/c.h", "namespace lft {\n}\n");
  tree.write("src/train/run/d.h", "namespace lft::trainer {\n}\n");
  EXPECT_EQ(foreign_namespaces(tree.path()), (Faults{"src/train/run/c.h is in namespace lft {",
                                                     "src/train/run/d.h is in namespace "
                                                     "lft::trainer {"}));
}

TEST(Sources, ACrowdedFolderIsNamed) {
  test::TempDir tree;
  for (size_t i = 0; i < kMostSources; ++i) {
    tree.write("src/io/f" + std::to_string(i) + ".h", "");
    tree.write("src/cli/f" + std::to_string(i) + ".cpp", "");
  }
  tree.write("src/cli/one_more.cpp", "");
  tree.write("src/io/CMakeLists.txt", "");
  tree.write("src/io/inner/a.h", "");
  EXPECT_EQ(crowded_folders(tree.path()), Faults());
  tree.write("src/io/one_more.cpp", "");
  EXPECT_EQ(crowded_folders(tree.path()), Faults{"src/io holds 41 sources, more than 40"});
}

TEST(Sources, ASourceWithoutAHeaderIsNamed) {
  test::TempDir tree;
  for (const char* file : {"src/io/json.h", "src/io/json.cpp", "src/io/json_lines.cpp",
                           "src/cli/train.cpp", "src/data/row.h", "kernels/add/add_ref.cpp"})
    tree.write(file, "");
  EXPECT_EQ(sources_without_header(tree.path()), Faults());
  tree.write("src/io/jsonlines.cpp", "");
  tree.write("src/data/json.cpp", "");  // the header of its name is in another folder
  EXPECT_EQ(sources_without_header(tree.path()),
            (Faults{"src/data/json.cpp", "src/io/jsonlines.cpp"}));
}

TEST(Sources, ALongLineIsNamedAndCharactersAreCounted) {
  test::TempDir tree;
  tree.write("models/a.h", std::string(100, 'x') + "\n");
  std::string wide;
  for (int i = 0; i < 100; ++i) wide += "\u00e9";
  tree.write("src/io/b.cpp", wide + "\n");
  EXPECT_EQ(long_lines(tree.path()), Faults());
  tree.write("tests/io/c.cpp", "\n" + wide + "x\n");
  tree.write("scripts/bench/d", wide + "x\n");
  tree.write("tests/goldens/e.json", wide + "x\n");
  EXPECT_EQ(long_lines(tree.path()),
            (Faults{"scripts/bench/d:1 has 101 columns", "tests/io/c.cpp:2 has 101 columns"}));
}

TEST(Sources, ASecondDefinitionIsNamed) {
  test::TempDir tree;
  tree.write("src/hf/filler.h", "namespace lft {\nstruct Piece {\n  int a;\n};\n}\n");
  tree.write("src/text/uses.h", "namespace lft {\nstruct Piece;\nstruct Other { Piece* p; };\n}\n");
  EXPECT_EQ(double_definitions(tree.path()), Faults());
  tree.write("src/text/pipeline/bpe.h", "namespace lft {\nenum class Piece { kOne };\n}\n");
  EXPECT_EQ(double_definitions(tree.path()),
            Faults{"lft::Piece is defined in src/hf/filler.h src/text/pipeline/bpe.h"});
}

TEST(Sources, ASecondAnonymousDefinitionOfOneLibraryIsNamed) {
  test::TempDir tree;
  const char* const text =
      "namespace lft::io {\nnamespace {\nstruct State {};\n}  // namespace\n}\n";
  tree.write("src/io/a.cpp", text);
  tree.write("src/text/a.cpp", text);
  EXPECT_EQ(double_definitions(tree.path()), Faults());
  tree.write("src/io/inner/b.cpp", text);
  EXPECT_EQ(double_definitions(tree.path()),
            Faults{"lft::io::(anonymous)::State of src/io is defined in src/io/a.cpp "
                   "src/io/inner/b.cpp"});
  tree.write("models/a/a.cpp", text);
  tree.write("models/b/b.cpp", text);
  EXPECT_EQ(double_definitions(tree.path()).size(), 2u);
}

TEST(Sources, DefinitionsAreReadAtNamespaceScope) {
  const auto names = [](const std::string& text) { return house::definitions(text); };
  EXPECT_EQ(names("namespace a::b { struct X final : public Y<int> { struct In {}; }; }\n"
                  "namespace a { enum class E : int { kOne }; class C; struct D\n{ }; }"),
            (Faults{"a::b::X", "a::E", "a::D"}));
  EXPECT_EQ(names("template <class T, class U = struct Q>\nstruct S { };\n"
                  "template <>\nstruct S<int> { };\nstruct [[nodiscard]] alignas(8) N { };\n"
                  "struct Outer::Inner { };"),
            (Faults{"S", "S<int>", "N", "Outer::Inner"}));
  EXPECT_EQ(names("struct stat info = {};\nstruct X* make(struct Y y) { struct Z {}; }\n"
                  "enum class Later : int;\nauto f = [] { struct W {}; };\n"
                  "namespace shorter = a::b;\nstruct { int i; } unnamed;"),
            Faults());
  EXPECT_EQ(names("// struct A {};\n/* struct B {}; */\n#define C struct C {\n"
                  "const char* t = \"struct D {\";\nconst char* r = R\"x(struct E { \")x\";\n"
                  "int n = 64'000; char c = '{';\nextern \"C\" { struct F {}; }\nstruct G {};"),
            (Faults{"F", "G"}));
  EXPECT_EQ(names("namespace a {\nnamespace {\nstruct X {};\n}\nstruct Y {};\n}\nstruct Z {};"),
            (Faults{"a::(anonymous)::X", "a::Y", "Z"}));
}

}  // namespace lft::sources_test
