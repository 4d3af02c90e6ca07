// Statements and the data between them.
#include <algorithm>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/text/jinja/syntax/parser.h"

namespace lft::text::jinja {

Body Parser::parse_body(const Words& ends) {
  Body body;
  std::unique_ptr<Output> output;
  const auto add_output = [&](ExprPtr part) {
    if (!output) output = std::make_unique<Output>(StmtKind::kOutput, part->line);
    output->parts.push_back(std::move(part));
  };
  while (!sees(TokenType::kEnd)) {
    if (sees(TokenType::kData)) {
      ExprPtr data = make(ExprKind::kConstant, now().line);
      data->constant = Value::of(Text(take().text));
      add_output(std::move(data));
    } else if (sees(TokenType::kPrintBegin)) {
      ++at_;
      add_output(parse_tuple());
      expect(TokenType::kPrintEnd, "}}");
    } else {
      if (output) body.push_back(std::move(output));
      ++at_;
      if (sees(TokenType::kName) && std::find(ends.begin(), ends.end(), now().text) != ends.end())
        return body;
      body.push_back(parse_statement());
      expect(TokenType::kBlockEnd, "%}");
    }
  }
  if (output) body.push_back(std::move(output));
  return body;
}

/// Parses the rest of a block after its head up to the name that ends it, which is not consumed.
Body Parser::parse_until(const Words& ends) {
  const Level level(*this);
  skip_sign(":");
  expect(TokenType::kBlockEnd, "%}");
  Body body = parse_body(ends);
  if (sees(TokenType::kEnd)) {
    const std::vector<std::string> wanted(ends.begin(), ends.end());
    unexpected(join(wanted, " or "));
  }
  return body;
}

std::unique_ptr<Stmt> Parser::parse_statement() {
  constexpr std::string_view kUnsupported[] = {"block",     "extends",    "include", "import",
                                               "from",      "autoescape", "do",      "trans",
                                               "pluralize", "debug"};
  if (!sees(TokenType::kName)) unexpected("the name of a statement");
  const std::string& name = now().text;
  if (name == "for") return parse_for();
  if (name == "if") return parse_if();
  if (name == "set") return parse_set();
  if (name == "macro") return parse_macro();
  if (name == "call") return parse_call_block();
  if (name == "filter") return parse_filter_block();
  if (name == "with") return parse_with();
  if (name == "print") return parse_print();
  if (name == "generation") return parse_generation();
  if (name == "break") return parse_loop_control(StmtKind::kBreak);
  if (name == "continue") return parse_loop_control(StmtKind::kContinue);
  work_.at(now().line);
  if (std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported))
    work_.unsupported("statement", name);
  work_.refuse("the chat template has a statement that there is not", quote_text(name, 40));
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto loop = std::make_unique<For>(StmtKind::kFor, take().line);
  loop->target = parse_targets("in", false);
  expect_name("in");
  loop->iterable = parse_tuple(false, "recursive");
  if (skip_name("if")) loop->test = parse_expression();
  loop->is_recursive = skip_name("recursive");
  const int outer = loops_;
  loops_ = loop->is_recursive ? 1 : loops_ + 1;
  loop->body = parse_until({"endfor", "else"});
  loops_ = loop->is_recursive ? 0 : outer;
  if (take().text == "else") {
    loop->otherwise = parse_until({"endfor"});
    ++at_;
  }
  loops_ = outer;
  return loop;
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto choice = std::make_unique<If>(StmtKind::kIf, take().line);
  while (true) {
    If::Branch branch;
    branch.test = parse_tuple(false);
    branch.body = parse_until({"elif", "else", "endif"});
    choice->branches.push_back(std::move(branch));
    const std::string end = take().text;
    if (end == "elif") continue;
    if (end == "else") {
      choice->otherwise = parse_until({"endif"});
      ++at_;
    }
    return choice;
  }
}

std::unique_ptr<Stmt> Parser::parse_set() {
  const uint32_t line = take().line;
  ExprPtr target = parse_targets({}, true);
  if (skip_sign("=")) {
    auto set = std::make_unique<Set>(StmtKind::kSet, line);
    set->target = std::move(target);
    set->value = parse_tuple();
    return set;
  }
  auto set = std::make_unique<SetBlock>(StmtKind::kSetBlock, line);
  set->target = std::move(target);
  set->filter = parse_filter(nullptr);
  set->body = parse_until({"endset"});
  ++at_;
  return set;
}

void Parser::parse_signature(Macro* macro) {
  expect_sign("(");
  while (!sees_sign(")")) {
    if (!macro->parameters.empty()) expect_sign(",");
    ExprPtr parameter = parse_name_target();
    for (const ExprPtr& known : macro->parameters)
      if (known->name == parameter->name)
        fail("a parameter comes twice: " + quote_text(known->name, 40), known->line);
    if (skip_sign("=")) {
      macro->defaults.push_back(parse_expression());
    } else if (!macro->defaults.empty()) {
      fail("a parameter without a default follows one with a default", parameter->line);
    }
    macro->parameters.push_back(std::move(parameter));
  }
  expect_sign(")");
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto macro = std::make_unique<Macro>(StmtKind::kMacro, take().line);
  macro->target = parse_name_target();
  macro->name = macro->target->name;
  parse_signature(macro.get());
  const int outer = std::exchange(loops_, 0);
  macro->body = parse_until({"endmacro"});
  loops_ = outer;
  ++at_;
  return macro;
}

std::unique_ptr<Stmt> Parser::parse_call_block() {
  const uint32_t line = take().line;
  auto block = std::make_unique<CallBlock>(StmtKind::kCallBlock, line);
  block->caller = std::make_unique<Macro>(StmtKind::kMacro, line);
  if (sees_sign("(")) parse_signature(block->caller.get());
  block->call = parse_expression();
  if (block->call->kind != ExprKind::kCall) fail("a call block wants a call", line);
  const int outer = std::exchange(loops_, 0);
  block->caller->body = parse_until({"endcall"});
  loops_ = outer;
  ++at_;
  return block;
}

std::unique_ptr<Stmt> Parser::parse_filter_block() {
  auto block = std::make_unique<FilterBlock>(StmtKind::kFilterBlock, take().line);
  block->filter = parse_filter(nullptr, true);
  block->body = parse_until({"endfilter"});
  ++at_;
  return block;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto with = std::make_unique<With>(StmtKind::kWith, take().line);
  while (!sees(TokenType::kBlockEnd)) {
    if (!with->targets.empty()) expect_sign(",");
    with->targets.push_back(parse_targets({}, false));
    expect_sign("=");
    with->values.push_back(parse_expression());
  }
  with->body = parse_until({"endwith"});
  ++at_;
  return with;
}

std::unique_ptr<Stmt> Parser::parse_generation() {
  auto generation = std::make_unique<Generation>(StmtKind::kGeneration, take().line);
  marks_generation_ = true;
  const int outer = std::exchange(loops_, 0);
  generation->body = parse_until({"endgeneration"});
  loops_ = outer;
  ++at_;
  return generation;
}

std::unique_ptr<Stmt> Parser::parse_print() {
  auto output = std::make_unique<Output>(StmtKind::kOutput, take().line);
  while (!sees(TokenType::kBlockEnd)) {
    if (!output->parts.empty()) expect_sign(",");
    output->parts.push_back(parse_expression());
  }
  return output;
}

std::unique_ptr<Stmt> Parser::parse_loop_control(StmtKind kind) {
  const Token token = take();
  if (loops_ == 0) fail(quote_text(token.text) + " is outside of any loop", token.line);
  return std::make_unique<Stmt>(kind, token.line);
}

}  // namespace lft::text::jinja
