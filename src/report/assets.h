// The files of report.html, embedded in the program.
#pragma once
#include <string_view>

namespace lft::report {

struct ReportAssets {
  std::string_view
      page;  // HTML with {{title}}, {{chart_js}}, {{charts_js}}, {{report_js}}, {{data}}
  std::string_view charts_js, report_js;
  std::string_view chart_js;  // Chart.js 3, MIT, its licence comment included
};
ReportAssets report_assets();

}  // namespace lft::report
