#include "src/text/jinja/value/text.h"

#include <algorithm>

#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

const std::shared_ptr<const TextBody>& empty_body() {
  static const std::shared_ptr<const TextBody> body = std::make_shared<TextBody>();
  return body;
}

/// The first of `runs` that ends after `begin`.
template <class AnyRun>
auto first_behind(const std::vector<AnyRun>& runs, size_t begin) {
  return std::upper_bound(runs.begin(), runs.end(), begin,
                          [](size_t at, const AnyRun& run) { return at < run.end; });
}

}  // namespace

Text::Text() : body_(empty_body()) {}

Text::Text(std::string bytes) {
  auto body = std::make_shared<TextBody>();
  body->bytes = std::move(bytes);
  body_ = std::move(body);
}

Text::Text(std::string bytes, int32_t source) {
  auto body = std::make_shared<TextBody>();
  body->bytes = std::move(bytes);
  if (source >= 0 && !body->bytes.empty())
    body->runs.push_back({0, static_cast<uint32_t>(body->bytes.size()), source, 0, true});
  body_ = std::move(body);
}

int64_t Text::points() const {
  int64_t count = body_->points.load(std::memory_order_relaxed);
  if (count < 0) {
    count = count_points(body_->bytes);
    body_->points.store(count, std::memory_order_relaxed);
  }
  return count;
}

size_t Text::byte_at(int64_t index, Work& work) const {
  if (is_ascii()) return static_cast<size_t>(index);
  if (index == points()) return size();
  work.step(1 + index / 64);
  return skip_points(body_->bytes, 0, index);
}

Text Text::slice(size_t begin, size_t end, Work& work) const {
  if (begin >= end) return Text();
  if (begin == 0 && end == size()) return *this;
  TextBuilder out(work);
  out.append(*this, begin, end);
  return out.finish();
}

void TextBuilder::grow(size_t bytes) {
  if (static_cast<int64_t>(size() + bytes) > limit_) {
    work_.refuse("the chat template writes too much",
                 "more than " + std::to_string(limit_) + " bytes");
  }
  work_.take(bytes);
}

void TextBuilder::append(std::string_view bytes) {
  grow(bytes.size());
  body_->bytes.append(bytes);
}

void TextBuilder::append(size_t count, char byte) {
  grow(count);
  body_->bytes.append(count, byte);
}

void TextBuilder::add_run(const Run& run) {
  auto& runs = body_->runs;
  if (!runs.empty() && run.exact && runs.back().exact) {
    Run& last = runs.back();
    if (last.end == run.begin && last.source == run.source &&
        last.offset + (last.end - last.begin) == run.offset) {
      last.end = run.end;
      return;
    }
  }
  work_.take(sizeof(Run));
  owned_ = false;
  runs.push_back(run);
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  if (begin >= end) return;
  grow(end - begin);
  const size_t base = size();
  body_->bytes.append(text.bytes().substr(begin, end - begin));
  const auto moved = [&](size_t at) {
    return static_cast<uint32_t>(std::clamp(at, begin, end) - begin + base);
  };
  for (auto run = first_behind(text.runs(), begin); run != text.runs().end() && run->begin < end;
       ++run) {
    const bool skips = run->exact && run->begin < begin;
    const uint32_t skipped = skips ? static_cast<uint32_t>(begin - run->begin) : 0;
    add_run({moved(run->begin), moved(run->end), run->source, run->offset + skipped, run->exact});
  }
  for (const LostRun& run : text.lost()) {
    if (run.end <= begin || run.begin >= end) continue;
    work_.take(sizeof(LostRun));
    body_->lost.push_back({moved(run.begin), moved(run.end), run.source, run.by});
  }
}

void TextBuilder::append_for(std::string_view bytes, const Text& text, size_t begin, size_t end) {
  grow(bytes.size());
  const auto base = static_cast<uint32_t>(size());
  body_->bytes.append(bytes);
  const auto top = static_cast<uint32_t>(size());
  const auto run = first_behind(text.runs(), begin);
  if (run != text.runs().end() && run->begin <= begin) {
    const uint32_t skipped = run->exact ? static_cast<uint32_t>(begin - run->begin) : 0;
    add_run({base, top, run->source, run->offset + skipped, false});
  }
  for (const LostRun& lost : text.lost()) {
    if (lost.end <= begin || lost.begin >= end) continue;
    work_.take(sizeof(LostRun));
    body_->lost.push_back({base, top, lost.source, lost.by});
  }
}

void TextBuilder::append_owned(std::string_view bytes, int32_t source) {
  const auto base = static_cast<uint32_t>(size());
  append(bytes);
  if (source < 0 || bytes.empty()) return;
  auto& runs = body_->runs;
  if (owned_ && !runs.empty() && runs.back().end == base && runs.back().source == source) {
    runs.back().end = static_cast<uint32_t>(size());
    return;
  }
  work_.take(sizeof(Run));
  runs.push_back({base, static_cast<uint32_t>(size()), source, 0, false});
  owned_ = true;
}

Text TextBuilder::finish() {
  work_.take(sizeof(TextBody));
  return Text(std::shared_ptr<const TextBody>(std::move(body_)));
}

Text without_origin(std::string bytes, const std::vector<Text>& from, const char* by, Work& work) {
  auto body = std::make_shared<TextBody>();
  work.take(bytes.size() + sizeof(TextBody));
  body->bytes = std::move(bytes);
  const auto end = static_cast<uint32_t>(body->bytes.size());
  const auto lose = [&](int32_t source, uint32_t loser) {
    for (const LostRun& known : body->lost)
      if (known.source == source) return;
    work.take(sizeof(LostRun) * (1 + body->lost.size()));
    body->lost.push_back({0, end, source, loser});
  };
  for (const Text& text : from) {
    for (const Run& run : text.runs()) lose(run.source, work.loser(by));
    for (const LostRun& run : text.lost()) lose(run.source, run.by);
  }
  return Text(std::shared_ptr<const TextBody>(std::move(body)));
}

Text without_origin(std::string bytes, const Text& from, const char* by, Work& work) {
  return without_origin(std::move(bytes), std::vector<Text>{from}, by, work);
}

}  // namespace lft::text::jinja
