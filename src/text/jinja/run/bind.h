// Resolves every name of a parsed template to its variable, and every filter, test and method to
// its function.
#pragma once
#include "src/text/jinja/syntax/ast.h"

namespace lft::text::jinja {

/// Throws kInput through `work` for an unknown filter or test outside of conditions, and for
/// anything that jinja2 refuses to compile.
void bind_program(Program* program, Work& work);

}  // namespace lft::text::jinja
