// Where the images of a row lie: in files under the image root, in the row as data: URIs, or beside
// it in a tar file.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/rows/row.h"
#include "src/io/file_handle.h"
#include "src/io/image.h"

namespace lft::data {

/// Whether an image of this name comes with its row: no file under the image root has it.
bool comes_with_row(const std::string& name);

/// The image that a name contains: a "data:[type];base64,..." URI, or base64 alone that begins as
/// an image does; with or without padding and line breaks, also base64 for URLs. The image's name
/// is a digest of its bytes: the same image has the same name. Nothing where the name is that of a
/// file; kInput with `where` for a URI that is not whole.
std::optional<RowImage> image_in_name(std::string_view name, const std::string& where);
/// The path of a file:// URI, or the name as it is. kInput for another URL.
std::string path_of_name(const std::string& name, const std::string& where);

/// Puts a sample's images in a tar file, in the order of the file, in the place of what its row
/// names: a member's whole name, its base name, or what follows the sample's key ("jpg", "0.png").
/// A row that names none shows them all. kInput where a name is none of these, unless the sample
/// has no image at all: then names are those of files, as are those after kArrowPath. False where
/// all are shown whose names differ in their numbers alone, and these do not rise.
bool take_members(Row& row, const std::vector<RowImage>& members);

/// An image of the row, opened. `root` and `follow_symlinks` as io::open_image() takes them.
io::FileHandle open_row_image(const Row& row, const std::string& name, const std::string& root,
                              bool follow_symlinks);
/// Its bytes, at most limits.max_bytes; kInput else.
std::string read_row_image(const Row& row, const std::string& name, const std::string& root,
                           const io::ImageLimits& limits);

}  // namespace lft::data
