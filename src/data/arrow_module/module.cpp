// Reads Parquet and Arrow files with the library of the pyarrow wheel.
#include "src/data/arrow_module/module.h"

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/metadata.h>

#include <memory>

#include "src/data/arrow_module/values.h"

namespace lft::data {
namespace {

constexpr int64_t kRowsAtOnce = 64;  // rows of Parquet that are decoded at once

[[noreturn]] void fail(const arrow::Status& status, int64_t row = -1) {
  throw ArrowFailure{"the file cannot be read", status.message(), "", "fetch it again, whole", row};
}
void check(const arrow::Status& status) {
  if (!status.ok()) fail(status);
}
template <class T>
T take(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

/// Record batches in the order of the file.
class BatchFile : public ArrowFile {
 public:
  void read(const std::function<void(int64_t, ArrowRow&&)>& visit) override {
    int64_t row = 0;
    try {
      const std::shared_ptr<arrow::RecordBatchReader> reader = batches();
      while (true) {
        std::shared_ptr<arrow::RecordBatch> batch;
        if (const arrow::Status status = reader->ReadNext(&batch); !status.ok()) fail(status, row);
        if (batch == nullptr) return;
        if (const arrow::Status status = batch->ValidateFull(); !status.ok()) fail(status, row);
        for (int64_t i = 0; i < batch->num_rows(); ++i, ++row) {
          ArrowRow read = arrow_row(*batch, i, limits_);
          visit(row, std::move(read));
        }
      }
    } catch (ArrowFailure& failure) {
      if (failure.row < 0) failure.row = row;
      throw;
    } catch (const parquet::ParquetException& error) {
      fail(arrow::Status::Invalid(error.what()), row);
    }
  }

 protected:
  explicit BatchFile(const ArrowLimits& limits) : limits_(limits) {}
  virtual std::shared_ptr<arrow::RecordBatchReader> batches() = 0;
  const ArrowLimits limits_;
};

class ParquetFile : public BatchFile {
 public:
  ParquetFile(const std::string& path, const ArrowLimits& limits) : BatchFile(limits) {
    parquet::ReaderProperties properties;
    properties.enable_buffered_stream();
    parquet::ArrowReaderProperties of_arrow(/*use_threads=*/false);
    of_arrow.set_batch_size(kRowsAtOnce);
    of_arrow.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(take(arrow::io::ReadableFile::Open(path)), properties));
    reader_ = take(builder.properties(of_arrow)->Build());
  }
  int64_t rows() const override { return reader_->parquet_reader()->metadata()->num_rows(); }
  uint64_t unpacked_bytes() const override {
    uint64_t bytes = 0;
    const auto metadata = reader_->parquet_reader()->metadata();
    for (int group = 0; group < metadata->num_row_groups(); ++group)
      bytes += static_cast<uint64_t>(metadata->RowGroup(group)->total_byte_size());
    return bytes;
  }

 private:
  std::shared_ptr<arrow::RecordBatchReader> batches() override {
    return take(reader_->GetRecordBatchReader());
  }
  std::unique_ptr<parquet::arrow::FileReader> reader_;
};

/// A file or a stream in Arrow's IPC format, read in place through a memory map.
class IpcFile : public BatchFile {
 public:
  IpcFile(const std::string& path, const ArrowLimits& limits) : BatchFile(limits) {
    file_ = take(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
    bytes_ = static_cast<uint64_t>(take(file_->GetSize()));
    const auto magic = take(file_->ReadAt(0, 6));
    if (magic->ToString() == "ARROW1") {
      whole_ = take(arrow::ipc::RecordBatchFileReader::Open(file_));
      rows_ = take(whole_->CountRows());
    } else {
      stream_ = take(arrow::ipc::RecordBatchStreamReader::Open(file_));
    }
  }
  int64_t rows() const override { return rows_; }
  uint64_t unpacked_bytes() const override { return bytes_; }

 private:
  std::shared_ptr<arrow::RecordBatchReader> batches() override {
    if (stream_ != nullptr) return stream_;
    std::vector<std::shared_ptr<arrow::RecordBatch>> all;  // views of the file
    for (int i = 0; i < whole_->num_record_batches(); ++i)
      all.push_back(take(whole_->ReadRecordBatch(i)));
    return take(arrow::RecordBatchReader::Make(all, whole_->schema()));
  }
  std::shared_ptr<arrow::io::MemoryMappedFile> file_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> whole_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> stream_;
  uint64_t bytes_ = 0;
  int64_t rows_ = -1;
};

bool is_parquet(const std::string& path) {
  const auto file = take(arrow::io::ReadableFile::Open(path));
  return take(file->ReadAt(0, 4))->ToString() == "PAR1";
}

}  // namespace
}  // namespace lft::data

extern "C" lft::data::ArrowFile* lft_open_arrow(const std::string& path,
                                                const lft::data::ArrowLimits& limits) {
  using namespace lft::data;
  try {
    if (is_parquet(path)) return new ParquetFile(path, limits);
    return new IpcFile(path, limits);
  } catch (const parquet::ParquetException& error) {
    fail(arrow::Status::Invalid(error.what()));
  }
}
