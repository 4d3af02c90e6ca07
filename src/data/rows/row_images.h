// The images of a row: files under the image root, data: URIs in the row, or members of the row's
// tar file.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/rows/row.h"
#include "src/io/file_handle.h"
#include "src/io/image.h"

namespace lft::data {

/// Whether a name ends as those of image files do, also of kinds that lft refuses by name.
bool has_image_ending(const std::string& name);

/// Whether a text contains an image: a "data:image/...", or base64 that begins like one.
bool is_embedded_image(std::string_view text);

/// Whether an image of this name comes with its row, not from a file under the image root.
bool comes_with_row(const std::string& name);

/// Whether it is a member of the row's tar file, named by its position there.
bool is_tar_member(const std::string& name);

/// A hash of the bytes of an image that comes with its row, so that equal images have equal keys in
/// every file; its pixels are not decoded. 0 for an image file.
uint64_t embedded_key(const Row& row, const std::string& name);

/// The image that a name contains: a "data:[type];base64,..." URI, or only base64 that begins like
/// an image; with or without padding and line breaks, also URL-safe base64. The image's name is a
/// digest of its bytes, so that equal images have equal names. Empty if the name is that of a file;
/// kInput with `where` for an incomplete URI.
std::optional<RowImage> image_in_name(std::string_view name, const std::string& where);
/// The path of a file:// URI, or the name as it is. kInput for another URL.
std::string path_of_name(const std::string& name, const std::string& where);

/// Replaces the image names of a row by members of its tar file. A row names a member by its whole
/// name, its base name, or the part after the sample's key ("jpg", "0.png"); a row without names
/// gets all members in the order of the file. kInput for other names, unless the sample has no
/// image: then they name files. False if all members are used and their names differ only in
/// numbers that are not ascending. Without `all_members`, in an unpacked Parquet or Arrow file,
/// only names after kArrowImage or kArrowBytes are members.
bool take_members(Row& row, const std::vector<RowImage>& members, bool all_members);

/// Opens an image of the row; `root` and `follow_symlinks` are those of io::open_image().
io::FileHandle open_row_image(const Row& row, const std::string& name, const std::string& root,
                              bool follow_symlinks);
/// Reads its bytes; kInput if they exceed limits.max_bytes.
io::FileBytes read_row_image(const Row& row, const std::string& name, const std::string& root,
                             const io::ImageLimits& limits);

}  // namespace lft::data
