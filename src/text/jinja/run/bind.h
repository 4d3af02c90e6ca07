// Gives every name of a parsed template its variable, and every filter, test and method its
// function.
#pragma once
#include "src/text/jinja/syntax/ast.h"

namespace lft::text::jinja {

/// Throws kInput by `work` for a filter or test that there is not, outside of conditions, and for
/// what jinja2 refuses to compile.
void bind_program(Program* program, Work& work);

}  // namespace lft::text::jinja
