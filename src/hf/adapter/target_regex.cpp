#include "src/hf/adapter/target_regex.h"

#include <map>
#include <set>

namespace lft::hf {
namespace {

std::string escaped(const std::string& name) {
  std::string text;
  for (const char c : name) text += c == '.' ? std::string("\\.") : std::string(1, c);
  const std::string part = "vision_model\\.";
  if (const size_t at = text.find(part); at != std::string::npos)
    text.replace(at, part.size(), "(?:" + part + ")?");
  return text;
}

std::string one_of(const std::vector<std::string>& choices) {
  if (choices.size() == 1) return choices[0];
  std::string text;
  for (const std::string& choice : choices) text += (text.empty() ? "(?:" : "|") + choice;
  return text + ")";
}

}  // namespace

std::string target_regex(const std::vector<std::string>& names) {
  constexpr std::string_view kLayers = ".layers.";
  std::set<std::string> single;
  std::map<std::string, std::map<int, std::set<std::string>>>
      towers;  // prefix -> layer -> what follows
  for (const std::string& name : names) {
    const size_t at = name.find(kLayers), number = at + kLayers.size();
    const size_t end = at == std::string::npos ? std::string::npos : name.find('.', number);
    if (end == std::string::npos)
      single.insert(escaped(name));
    else
      towers[name.substr(0, number)][std::stoi(name.substr(number, end - number))].insert(
          escaped(name.substr(end + 1)));
  }
  std::vector<std::string> choices(single.begin(), single.end());
  for (const auto& [prefix, layers] : towers) {
    std::map<std::set<std::string>, std::vector<std::string>>
        alike;  // the layers that have the same modules
    for (const auto& [layer, modules] : layers) alike[modules].push_back(std::to_string(layer));
    for (const auto& [modules, numbers] : alike) {
      choices.push_back(escaped(prefix) + one_of(numbers) + "\\." +
                        one_of({modules.begin(), modules.end()}));
    }
  }
  return one_of(choices);
}

}  // namespace lft::hf
