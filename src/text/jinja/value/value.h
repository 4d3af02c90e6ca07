// A value of a template: the equivalents of Python's None, bool, int, float, str, list, tuple and
// dict, and Jinja's own types. Values share their contents and are immutable, except for namespaces
// and iterators.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/text/jinja/value/text.h"

namespace lft::text::jinja {

enum class Kind : uint8_t {
  kMissing,    // no value at all: a variable that is not set, an omitted argument
  kUndefined,  // the result of reading such a variable
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kRange,
  kIterator,  // can be iterated once, like a generator
  kView,      // a dict's keys, values or items
  kFunction,
  kMethod,  // bound to a value
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
};

struct Builtin;
struct ListObject;
struct DictObject;

class Value {
 public:
  Value() : integer_(0) {}
  static Value missing() { return Value(); }
  /// `name` must outlive the value: a name of the template, or a literal.
  static Value undefined(const char* name = "") {
    Value out(Kind::kUndefined);
    out.name_ = name;
    return out;
  }
  static Value none() { return Value(Kind::kNone); }
  static Value of(bool value) {
    Value out(Kind::kBool);
    out.boolean_ = value;
    return out;
  }
  static Value of(int64_t value) {
    Value out(Kind::kInt);
    out.integer_ = value;
    return out;
  }
  static Value of(double value) {
    Value out(Kind::kFloat);
    out.real_ = value;
    return out;
  }
  static Value of(const Text& text, bool marked = false) {
    Value out(Kind::kText, text.body());
    out.marked_ = marked;
    return out;
  }
  static Value of(const Builtin* function) {
    Value out(Kind::kFunction);
    out.function_ = function;
    return out;
  }
  Value(Kind kind, std::shared_ptr<const Object> object)
      : kind_(kind), integer_(0), object_(std::move(object)) {}
  /// Throws kInput if the values are nested too deeply.
  static Value list(std::vector<Value> items, Work& work);
  static Value tuple(std::vector<Value> items, Work& work);

  /// A caller's value. Its parts are numbered from `*source`, which is advanced past the last:
  /// lists and objects before their elements, the values of an object in order. A negative number
  /// disables numbering. Throws kInput for too deep nesting or an integer of more than 64 bits.
  static Value from_json(const nlohmann::ordered_json& json, int32_t* source);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  /// Whether it is a number in Python: bool, int or float.
  bool is_number() const { return kind_ >= Kind::kBool && kind_ <= Kind::kFloat; }
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  /// A text marked as HTML by the filter `safe` or `escape`.
  bool is_marked() const { return marked_; }
  /// The number of the caller's value, or -1. A text has the numbers in its runs.
  int32_t source() const { return source_; }
  Value with_source(int32_t source) const {
    Value out = *this;
    out.source_ = source;
    return out;
  }

  bool boolean() const { return boolean_; }
  int64_t integer() const { return kind_ == Kind::kBool ? int64_t{boolean_} : integer_; }
  double real() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(integer()); }
  const char* name() const { return name_; }
  const Builtin* function() const { return function_; }
  Text text() const { return Text(std::static_pointer_cast<const TextBody>(object_)); }
  std::string_view bytes() const { return object<TextBody>().bytes; }
  const std::vector<Value>& items() const;
  const DictObject& dict() const;

  template <class T>
  const T& object() const {
    return static_cast<const T&>(*object_);
  }
  /// The base of the few mutable objects.
  template <class T>
  T& changing() const {
    return const_cast<T&>(static_cast<const T&>(*object_));
  }
  const std::shared_ptr<const Object>& shared() const { return object_; }
  bool same_object(const Value& other) const { return object_ == other.object_; }
  int depth() const { return object_ ? object_->depth : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind), integer_(0) {}

  Kind kind_ = Kind::kMissing;
  bool marked_ = false;
  int32_t source_ = -1;
  union {
    bool boolean_;
    int64_t integer_;
    double real_;
    const char* name_;
    const Builtin* function_;
  };
  std::shared_ptr<const Object> object_;
};

struct ListObject : Object {
  std::vector<Value> items;
  bool is_group = false;  // a tuple of groupby, with the names `grouper` and `list`
};

/// Keys in insertion order.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_multimap<size_t, uint32_t> index;  // slots by hash, if there are many entries

  /// Null if the key is absent.
  const Value* find(std::string_view key) const;
  /// The key must be hashable.
  const Value* find(const Value& key, Work& work) const;
  /// Replaces the value of an existing key. The key must be hashable.
  void set(const Value& key, Value value, Work& work);
  /// The same for a key that is known to be new.
  void add(Value key, Value value);
};

struct NamespaceObject : Object {
  DictObject attributes;
  bool is_printed = false;  // while it is being printed
  void release() override {
    attributes.entries.clear();
    attributes.index.clear();
  }
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1, length = 0;
};

struct IteratorObject : Object {
  std::vector<Value> items;
  size_t at = 0;
};

struct ViewObject : Object {
  enum class Part { kKeys, kValues, kItems };
  Part part = Part::kKeys;
  Value dict;
};

struct MethodObject : Object {
  Value receiver;
  const Builtin* builtin = nullptr;
};

/// cycler(...)
struct CyclerObject : Object {
  std::vector<Value> items;
  size_t at = 0;
};

/// joiner(...)
struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

inline const std::vector<Value>& Value::items() const { return object<ListObject>().items; }
inline const DictObject& Value::dict() const { return object<DictObject>(); }

/// Nests `inner` one level below an object. Throws kInput if that is too deep.
void nest(Object* object, const Value& inner, Work& work);
Value make_dict(std::shared_ptr<DictObject> dict);
Value make_iterator(std::vector<Value> items, Work& work);
Value make_text(std::string bytes, Work& work);

/// "str", "list", ...: Python's name of the type.
const char* type_name(const Value& value);
bool truth(const Value& value);
/// len(), or -1 if the value has none.
int64_t length_of(const Value& value);

}  // namespace lft::text::jinja
