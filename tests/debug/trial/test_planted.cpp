// Every planted bug is named by its command, and the same command passes healthy input.
#include "debug/planted.h"

namespace lft::test::planted_test {

TEST_P(Planted, IsNamed) {
  const Told told = GetParam().run(true);
  EXPECT_EQ(told.code, GetParam().code) << told.text;
  for (const std::string& piece : GetParam().says)
    EXPECT_NE(told.text.find(piece), std::string::npos) << "no \"" << piece << "\" in:\n"
                                                        << told.text;
}

TEST_P(Planted, IsNotSeenWhereItIsNot) {
  const Told told = GetParam().run(false);
  EXPECT_EQ(told.code, 0) << told.text;
  EXPECT_EQ(told.text.find(GetParam().says.front()), std::string::npos) << told.text;
}

}  // namespace lft::test::planted_test
