# Read by cpack -G DEB: finds the system packages of the libraries that lft and its OpenCV module
# link. LibTorch's libraries belong to no package.
set(folder ${CPACK_PACKAGE_DIRECTORY}/deb)
file(WRITE ${folder}/debian/control "Source: lft\n\nPackage: lft\nArchitecture: any\n")
execute_process(COMMAND dpkg-shlibdeps -O --ignore-missing-info -l${CPACK_LFT_TORCH}
                        ${CPACK_LFT_PROGRAMS}
                WORKING_DIRECTORY ${folder} OUTPUT_VARIABLE found ERROR_VARIABLE why
                RESULT_VARIABLE code)
if(NOT code EQUAL 0 OR NOT found MATCHES "shlibs:Depends=([^\n]*)")
  message(FATAL_ERROR "The package's dependencies cannot be told: dpkg-shlibdeps ended with "
                      "${code} (its package is dpkg-dev): ${why}")
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS ${CMAKE_MATCH_1})
