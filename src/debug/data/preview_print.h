// Previews as text and as an HTML page.
#pragma once
#include <string>
#include <vector>

#include "src/debug/data/preview.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

/// A sample as text: supervised tokens coloured for a terminal, or in [[ ]]; masked answers struck
/// through, or in (( )).
std::string preview_text(const Preview& preview, const recipe::Recipe& recipe, bool terminal);

/// One HTML page that works offline, with embedded images. All text is escaped. `others`, from
/// under_template(), are shown next to the previews.
std::string preview_page(const std::vector<Preview>& previews, const recipe::Recipe& recipe,
                         const std::vector<Preview>& others = {}, const std::string& other = "");

}  // namespace lft::debug
