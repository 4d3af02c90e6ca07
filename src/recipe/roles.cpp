#include "src/recipe/roles.h"

#include <type_traits>

#include "src/recipe/strict_reader.h"

namespace lft::recipe {
namespace {

/// Visitor: the key paths of a part's fields.
struct PartFields : SectionPath {
  Part part;
  std::vector<std::string> keys = {};

  template <class T>
  void field(const char* key, T&, const FieldRule& rule, const char*) {
    if (rule.part == part) keys.push_back(prefix + key);
  }
};

/// Visitor: sets fields to the value that disables their part.
struct CoreWriter : SectionPath {
  bool for_fit;

  template <class T>
  void field(const char*, T& value, const FieldRule& rule, const char*) {
    if (rule.core == nullptr || (for_fit && !rule.hinders_fit)) return;
    if constexpr (std::is_same_v<T, int64_t>) {
      parse_plain_int(rule.core, &value);
    } else if constexpr (std::is_same_v<T, double>) {
      parse_plain_double(rule.core, &value);
    } else if constexpr (std::is_assignable_v<T&, const char*>) {
      value = rule.core;
    }
  }
};

/// Visitor: the address of every field's value.
struct Addresses : SectionPath {
  std::vector<const void*> list = {};

  template <class T>
  void field(const char*, const T& value, const FieldRule&, const char*) {
    list.push_back(&value);
  }
};

/// Visitor: copies a part's fields from another recipe, whose addresses are in the same order.
struct PartCopier : SectionPath {
  Part part;
  std::vector<const void*> from;
  size_t next = 0;

  template <class T>
  void field(const char*, T& value, const FieldRule& rule, const char*) {
    const void* const source = from[next++];
    if (rule.part == part) value = *static_cast<const T*>(source);
  }
};

}  // namespace

const std::vector<NamedPart>& optional_parts() {
  static const std::vector<NamedPart> parts = {
      {Part::kPrecision, "precision"},
      {Part::kEps, "eps of the optimizer"},
      {Part::kAdapterScale, "scale of the adapters"},
      {Part::kClipping, "clipping"},
      {Part::kSchedule, "schedule"},
      {Part::kWeightDecay, "weight decay"},
      {Part::kDropout, "dropout"},
      {Part::kAccumulation, "accumulation"},
      {Part::kNoise, "noise on the embeddings"},
      {Part::kCheckpointing, "activation checkpointing"},
  };
  return parts;
}

std::vector<std::string> part_fields(Part part) {
  PartFields fields{{}, part};
  const Recipe recipe;
  visit(fields, recipe);
  return fields.keys;
}

void strip_to_core(Recipe& recipe) {
  CoreWriter writer{{}, false};
  visit(writer, recipe);
}

void strip_for_fit(Recipe& recipe) {
  CoreWriter writer{{}, true};
  visit(writer, recipe);
}

void copy_part(Recipe& to, const Recipe& from, Part part) {
  Addresses addresses;
  visit(addresses, from);
  PartCopier copier{{}, part, std::move(addresses.list)};
  visit(copier, to);
}

}  // namespace lft::recipe
