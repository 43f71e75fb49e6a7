/* onnx.c: ONNX files. Numbers of fields are those of onnx.proto. */
#include "tests/hostile/hostile.h"
#include "frontend/onnx/onnx.h"
#include "ir/ir.h"
#include "runtime/weights.h"

#define MODEL(graph) "1=9 8{ 2=17 } 7{ " graph " }"
#define VALUE(field, name, dims) " " field "{ 1:" name " 2{ 1{ 1=1 2{ " dims " } } } }"
#define X VALUE("11", "x", "1{ 1=2 }")
#define Y VALUE("12", "y", "1{ 2:n }")
#define NEG "1{ 1:x 2:y 4:Neg }"
#define ADD(weight) MODEL("1{ 1:x 1:w 2:y 4:Add } 5{ " weight " 8:w }" X Y)
#define EXTERNAL(location, more) ADD("1=2 2=1 14=1 13{ 1:location 2:" location " } " more)
#define OUTSIDE "folder"
/* A node whose input `w` is an integer, and what Constant* make of it. */
#define SHAPED(op, numbers)                                                                        \
    MODEL("1{ 1:w 2:s 4:" op " } 1{ 1:x 1:s 2:y 4:Add } 5{ 2=7 8:w " numbers " }" X Y)
/* A node whose input `w` is seven integers instead of one. */
#define LISTED(op)                                                                                 \
    MODEL("1{ 1:x 1:w 1:x 2:y 4:" op                                                               \
          " } 5{ 1=7 2=7 8:w 7=0x4000000000000000 7=1 7=2 7=3 7=4 7=5 7=6 }" X Y)
/* A product with weights that have neither rows nor columns. */
#define BLOCKS(columns, size)                                                                      \
    MODEL("1{ 1:x 1:w 1:s 2:y 4:MatMulNBits 7:com.microsoft 5{ 1:K 3=" columns                     \
          " 20=2 } 5{ 1:N 3=1 20=2 } 5{ 1:block_size 3=" size                                      \
          " 20=2 } } 5{ 2=2 8:w 9*1 } 5{ 2=1 8:s 9*4 }" X Y)
/* A part of an array of this shape that has no elements. */
#define NO_ELEMENTS(axis, shape)                                                                   \
    MODEL("1{ 1:w 1:i 2:s 4:Gather 5{ 1:axis 3=" axis " 20=2 } } 1{ 1:x 1:s 2:y 4:Add } 5{ " shape \
          " 2=7 8:w } 5{ 1=1 2=7 8:i 7=0 }" X Y)
#define NEST(inner) "1{ 2:y 4:If 5{ 1:then_branch 6{ " inner " } } }"
#define NEST4(inner) NEST(NEST(NEST(NEST(inner))))

static bool open_it(const char *path, sn_error *err) {
    sn_module *m = sn_module_new("onnx");
    sn_weights *w = sn_onnx_load(m, path, NULL, err);
    sn_weights_close(w);
    sn_module_free(m);
    return w != NULL;
}

static const hostile_row rows[] = {
    {"control", NULL, MODEL(NEG X Y), NULL},
    {"control", NULL, EXTERNAL("numbers.bin", ""), NULL},
    {"control: every second number, from the last one", NULL,
     MODEL(
         "1{ 1:w 1:s 1:e 1:a 1:p 2:d 4:Slice } 1{ 1:x 1:d 2:y 4:Reshape } 5{ 1=3 2=7 8:w 7=2 7=7 "
         "7=1 }"
         " 5{ 1=1 2=7 8:s 7=2 } 5{ 1=1 2=7 8:e 7=-9 } 5{ 1=1 2=7 8:a 7=0 } 5{ 1=1 2=7 8:p 7=-2 }" X
             Y),
     NULL},
    {"control: a size of 0 that stays", NULL,
     MODEL("1{ 1:w 1:i 2:s 4:Reshape 5{ 1:allowzero 3=1 20=2 } } 1{ 1:x 2:y 4:Neg } 5{ 1=0 1=3 2=7 "
           "8:w }"
           " 5{ 1=2 2=7 8:i 7=3 7=0 }" X Y),
     NULL},
    {"CVE-2022-25882: ../", NULL, EXTERNAL("../numbers.bin", ""), OUTSIDE},
    {"CVE-2024-27318: a/../..", NULL, EXTERNAL("a/../../numbers.bin", ""), OUTSIDE},
    {"CVE-2024-5187: an absolute path", NULL, EXTERNAL("/etc/hostname", ""), OUTSIDE},
    {"CVE-2026-27489: a link to a file", NULL, EXTERNAL("link.bin", ""), OUTSIDE},
    {"CVE-2026-34447: a link to a folder", NULL, EXTERNAL("linked/hostname", ""), OUTSIDE},
    {"CVE-2026-34445: a length of 2^63", NULL,
     EXTERNAL("numbers.bin", "13{ 1:length 2:9223372036854775808 }"), "behind the end"},
    {"an offset that wraps", NULL,
     EXTERNAL("numbers.bin", "13{ 1:offset 2:18446744073709551612 } 13{ 1:length 2:8 }"),
     "behind the end"},
    {"a length that wraps", NULL,
     EXTERNAL("numbers.bin", "13{ 1:offset 2:4 } 13{ 1:length 2:18446744073709551612 }"),
     "behind the end"},
    {"a negative offset", NULL, EXTERNAL("numbers.bin", "13{ 1:offset 2:-4 }"), "offset"},
    {"an offset of letters", NULL, EXTERNAL("numbers.bin", "13{ 1:offset 2:four }"), "offset"},
    {"a length above 64 bits", NULL,
     EXTERNAL("numbers.bin", "13{ 1:length 2:99999999999999999999 }"), "length"},
    {"another length than the shape", NULL, EXTERNAL("numbers.bin", "13{ 1:length 2:4 }"),
     "has 4 bytes"},
    {"a device", NULL, EXTERNAL("/dev/zero", ""), OUTSIDE},

    {"elements wrap to 0", NULL, ADD("1=0x100000000 1=0x100000000 2=1 9*0"),
     "the shape of 'w' is too large"},
    {"bytes wrap to 4", NULL, ADD("1=0x4000000000000001 2=1 9*4"), "the shape of 'w' is too large"},
    {"a size below 0", NULL, ADD("1=-2 2=1 9*8"), "the shape of 'w' is too large"},
    {"sizes below 0 with a product above", NULL, ADD("1=-2 1=-1 2=1 9*8"),
     "the shape of 'w' is too large"},
    {"no elements beside 2^62", NULL, ADD("1=0 1=0x4000000000000000 2=1 9*0"), "do not broadcast"},
    {"fewer numbers than the shape", NULL, ADD("1=1000000000 2=1 9*8"),
     "'w' has 8 bytes, but its shape needs 4000000000"},
    {"texts", NULL, ADD("1=2 2=8 6:a 6:b"), "element type 8"},
    {"an unknown type", NULL, ADD("1=2 2=99 9*8"), "element type 99"},
    {"100 axes in one", NULL, ADD("1=1 1=1 1=1 1=1 1=1 1=1 1=1 1=1 1=1 1=1 2=1 9*4"),
     "more than 8 axes"},

    {"a packed list of 2^31", NULL, ADD("1<0x80000000"), "exceeds its message"},
    {"a message of 2^63", NULL, "1=9 7<0x8000000000000000", "exceeds its message"},
    {"a number of 11 bytes", NULL,
     "'\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01 8{ 2=17 } 7{ " NEG X Y " }",
     "a number does not end|unknown format"},
    {"a group", NULL, "1=9 7{ '\x0b }", "wire type"},
    {"no graph", NULL, "1=9", "it has no graph|unknown format"},
    {"a number for the graph", NULL, "1=9 7=7", "another type than in onnx.proto|unknown format"},
    {"graphs in graphs", NULL, MODEL(NEST4(NEST4(NEST4(NEG))) X Y), "nested too deeply"},
    {"a cycle", NULL, MODEL("1{ 1:x 1:b 2:y 4:Add } 1{ 1:y 2:b 4:Neg }" X Y), "cycle"},
    {"a function of itself", NULL,
     "1=9 8{ 2=17 } 8{ 1:d 2=1 } 7{ 1{ 1:x 2:y 4:F 7:d }" X Y " } "
     "25{ 1:F 4:a 5:b 10:d 9{ 1:d 2=1 } 7{ 1:a 2:b 4:F 7:d } }",
     "nested too deeply"},

    {"2^40 elements", NULL, SHAPED("ConstantOfShape", "1=1 7=0x10000000000"), "f32[1099511627776]"},
    {"elements that wrap", NULL, SHAPED("ConstantOfShape", "1=2 7=0x100000000 7=0x100000000"),
     "f32[4294967296,4294967296]"},
    {"-1 elements", NULL, SHAPED("ConstantOfShape", "1=1 7=-1"), "a size cannot be negative"},
    {"2^40 rows of no elements", NULL,
     MODEL("1{ 1:w 1:i 2:s 4:Gather 5{ 1:axis 3=1 20=2 } } 1{ 1:x 1:s 2:y 4:Add } 5{ "
           "1=0x10000000000 1=0 2=7 8:w }"
           " 5{ 1=0 2=7 8:i }" X Y),
     "element types differ"},
    {"rows of no elements whose number wraps", NULL,
     NO_ELEMENTS("2", "1=3 1=6148914691236517204 1=0"),
     "slice: axis 2: 1 elements from 0 exceed 0"},
    {"elements that wrap in no rows", NULL, NO_ELEMENTS("0", "1=0 1=3 1=6148914691236517204"),
     "Gather 's' (node 1, ai.onnx, version 17): too many known elements"},
    {"a range of 2^62", NULL,
     MODEL("1{ 1:a 1:b 1:c 2:s 4:Range } 1{ 1:x 1:s 2:y 4:Add } 5{ 2=7 8:a 7=0 } 5{ 2=7 8:b "
           "7=0x4000000000000000 }"
           " 5{ 2=7 8:c 7=1 }" X Y),
     "more than 2^31 elements"},
    {"a loop of 2^62", NULL,
     MODEL("1{ 1:t 1:c 1:x 2:y 4:Loop 5{ 1:body 20=5 6{ 1{ 1:k 2:m 4:Identity } 1{ 1:z 2:o 4:Neg }"
           " 11{ 1:i } 11{ 1:k } 11{ 1:z } 12{ 1:m } 12{ 1:o } } } } 5{ 2=7 8:t "
           "7=0x4000000000000000 }"
           " 5{ 2=9 8:c 9:\x01 }" X Y),
     "its number of iterations is not known"},
    {"tiles that wrap", NULL,
     MODEL("1{ 1:x 1:w 2:y 4:Tile } 5{ 1=1 2=7 8:w 7=0x7fffffffffffffff }" X Y),
     "a dimension overflows 64 bits"},
    {"seven numbers for one: k", NULL, LISTED("TopK"), "k is not one number"},
    {"seven numbers for one: an axis", NULL, LISTED("CumSum"), "its axis is not one number"},
    {"seven numbers for one: a depth", NULL, LISTED("OneHot"), "its depth is not one number"},
    {"seven numbers for one: a diagonal", NULL, LISTED("Trilu"), "k is not one number"},
    {"an input of 2^62", NULL,
     MODEL("1{ 1:x 1:x 2:y 4:Concat 5{ 1:axis 3=0 20=2 } }" VALUE(
         "11", "x", "1{ 1=0x4000000000000000 } 1{ 1=0x4000000000000000 }") Y),
     "input 'x' has 4611686018427387904 elements"},
    {"weights without axes that are to be unpacked", NULL, BLOCKS("2", "16"),
     "has 2 elements, but [1,1,16] has 16"},
    {"columns that wrap when blocks are counted", NULL, BLOCKS("0x7fffffffffffffff", "16"),
     "K, N, block_size must be from 1 to 2^31 - 1"},
    {"a sum of floats and of 2^63 - 1", NULL, ADD("1=3 2=7 7=0x7fffffffffffffff 7=1 7=2"),
     "element types differ: f32[2] 'x' and i64[3] 'w'"},
    {"a shape that wraps", NULL,
     MODEL("1{ 1:w 1:i 2:s 4:Reshape } 1{ 1:x 1:s 2:y 4:Add } 5{ 1=2 2=7 8:w 7=1 7=2 } 5{ 1=2 2=7 "
           "8:i 7=0x4000000000000000 7=4 }" X Y),
     "a dimension overflows 64 bits"},
    {"a padding that wraps", NULL,
     MODEL("1{ 1:x 2:y 4:MaxPool 5{ 1:kernel_shape 8=2 20=7 } 5{ 1:pads 8=0x7fffffffffffffff 8=1 "
           "20=7 } }" VALUE("11", "x", "1{ 1=1 } 1{ 1=1 } 1{ 1=8 }") Y),
     "sizes of the window must be positive"},
    {"a result of a transposed convolution that wraps", NULL,
     MODEL("1{ 1:x 1:w 2:y 4:ConvTranspose 5{ 1:output_shape 8=0x8000000000000000 20=7 } } 5{ 1=1 "
           "1=1 1=2 2=1 8:w 9*8 }" VALUE("11", "x", "1{ 1=1 } 1{ 1=1 } 1{ 1=8 }") Y),
     "its sizes must be numbers below 2^31"},
    {"parts of 2^63 - 1 elements", NULL,
     MODEL("1{ 1:w 2:s 4:ConstantOfShape } 1{ 1:s 2:a 2:b 4:Split 5{ 1:axis 3=1 20=2 } } 1{ 1:x "
           "1:a 2:y 4:Add } 5{ 1=2 2=7 "
           "8:w 7=0 7=0x7fffffffffffffff }" X Y),
     "do not broadcast"},
    {"a conversion of nothing", NULL,
     MODEL("1{ 2:s 4:Cast 5{ 1:to 3=7 20=2 } } 1{ 1:x 1:s 2:y 4:Add }" X Y), "input 0 is missing"},
    {"a sum of one number", NULL,
     MODEL("1{ 1:w 2:s 4:Add } 1{ 1:x 1:s 2:y 4:Add } 5{ 2=7 8:w 7=1 }" X Y),
     "it needs two inputs"},
    {0}};

const hostile_format hostile_onnx = {
    .name = "onnx",
    .file = "m.onnx",
    .make = hostile_words,
    .open = open_it,
    .command = {"explain @", "call @", "import @ -o ^", "compile @ -o ^", "generate @ -p a -n 1"},
    .row = rows};
