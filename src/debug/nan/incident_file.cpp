#include "src/debug/nan/incident_file.h"

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/train/machine/precision.h"

namespace lft::debug {

[[noreturn]] void refuse_incident(const std::string& where, const std::string& what,
                                  const std::string& found, const std::string& expected) {
  refuse(ErrorKind::kInput, what, where, found, expected,
         "replay an incidents/step-N folder as the run wrote it, over the model and data it used");
}

[[noreturn]] void damaged(const std::string& where, const std::string& found,
                          const std::string& expected) {
  refuse_incident(where, "the incident is damaged", found, expected);
}

namespace {

Incident::Row read_row(const io::Json& json, const std::string& path) {
  constexpr int64_t kMost = int64_t{1} << 40;
  Incident::Row row{
      .id = io::json_string(json, "id", path),
      .index = io::json_int(json, "index", 0, kMost, path),
      .tokens = io::json_int(json, "tokens", 0, kMost, path),
      .supervised = io::json_int(json, "supervised_tokens", 0, kMost, path),
      .micro = static_cast<size_t>(io::json_int(json, "micro_batch", 0, 1 << 20, path))};
  if (json.contains("reference")) row.reference = io::json_number(json, "reference", path);
  const auto answer = json.find("answer_ids");
  if (answer == json.end()) return row;
  row.answering = true;
  if (!answer->is_array()) damaged(path, "answer_ids: " + io::describe_json(*answer), "a list");
  for (const io::Json& id : *answer) {
    if (!id.is_number_integer() || id < 0 || id > kMost)
      damaged(path, "answer_ids: " + io::describe_json(id), "token ids");
    row.answer.push_back(id.get<int64_t>());
  }
  return row;
}

const io::Json& part(const io::Json& json, const char* key, bool list, const std::string& path) {
  const auto found = json.find(key);
  if (found == json.end() || (list ? !found->is_array() : !found->is_object())) {
    damaged(
        path,
        std::string(key) + (found == json.end() ? " is missing" : ": " + io::describe_json(*found)),
        list ? "a list" : "an object");
  }
  return *found;
}

}  // namespace

Incident read_incident(const std::string& dir) {
  const std::string path = dir + "/incident.json";
  return parse_incident(io::read_json_file(path), path);
}

Incident parse_incident(const io::Json& json, const std::string& path) {
  Incident incident;
  incident.path = path;
  if (!json.is_object()) damaged(path, io::describe_json(json), "an object");
  io::json_int(json, "version", 1, 1, path);
  incident.step = io::json_int(json, "step", 1, int64_t{1} << 40, path);
  incident.reason = io::json_string(json, "reason", path);
  const std::string precision = io::json_string(json, "precision", path);
  if (precision != "fp32" && precision != "bf16" && precision != "fp16") {
    damaged(path, "precision: " + quote_text(precision), "fp32, bf16 or fp16");
  }
  incident.compute = train::compute_type(precision);
  incident.loss_scale = io::json_number(json, "loss_scale", path);
  if (!(incident.loss_scale > 0))
    damaged(path, "loss_scale: " + io::describe_json(json["loss_scale"]), "above 0");
  if (json.contains("loss") && json["loss"].is_number()) incident.loss = json["loss"].get<double>();
  if (const auto kl = json.find("kl"); kl != json.end())
    incident.kl = kl->is_number() ? kl->get<double>() : NAN;
  const io::Json& generator = part(json, "generator", /*list=*/false, path);
  incident.seed =
      static_cast<uint64_t>(io::json_int(generator, "seed", INT64_MIN, INT64_MAX, path));
  incident.epoch = io::json_int(generator, "epoch", 0, int64_t{1} << 40, path);
  for (const io::Json& row : part(json, "samples", /*list=*/true, path)) {
    incident.rows.push_back(read_row(row, path));
    const size_t before =
        incident.rows.size() < 2 ? 0 : incident.rows[incident.rows.size() - 2].micro;
    const size_t micro = incident.rows.back().micro;
    if (micro != before && micro != before + 1) {
      damaged(path, "micro_batch " + std::to_string(micro) + " after " + std::to_string(before),
              "rows in order");
    }
  }
  if (json.contains("rows_of"))
    incident.evaluated = io::json_int(json, "rows_evaluated", 1, int64_t{1} << 40, path);
  if (incident.rows.empty()) damaged(path, "no sample", "those of the step");
  if (json.contains("identity")) incident.identity = part(json, "identity", /*list=*/false, path);
  if (json.contains("trainables_sha256"))
    incident.trainables_sha256 = io::json_string(json, "trainables_sha256", path);
  return incident;
}

}  // namespace lft::debug
