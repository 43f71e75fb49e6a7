/* vmath_pieces.c: erf and tanh of 16 floats by tables in registers.
 * |x| falls into one of 16 or 32 pieces of equal width; each is a polynomial in the distance from
 * its centre whose coefficients are looked up by one instruction each. Centres are chosen so that
 * the value there is nearly a float (Gal, 1986); coefficients interpolate at Chebyshev's nodes. */
#include "codegen/emit/vmath_impl.h"

enum { TERMS = 6, TAIL_TERMS = 4 };

typedef struct pieces {
    int n;
    double per_unit;               /* pieces on an interval of length 1 */
    double end;                    /* from here on the result rounds to 1 */
    const float *table[2 + TERMS]; /* centres, values there, coefficients of t, t^2, ... */
} pieces;

static const float erf_pieces[2 + TERMS][16] = {
    {0x0.0p+0f, 0x1.08239cp-2f, 0x1.0825b6p-1f, 0x1.8c4690p-1f, 0x1.082438p+0f, 0x1.4a3458p+0f,
     0x1.8c457cp+0f, 0x1.ce55aep+0f, 0x1.08287ap+1f, 0x1.292ce2p+1f, 0x1.4a3354p+1f, 0x1.6b3b9ap+1f,
     0x1.8c5822p+1f, 0x1.ad752ap+1f, 0x1.ce92dap+1f, 0x1.ef5c9ep+1f},
    {0x0.0p+0f, 0x1.239188p-2f, 0x1.119930p-1f, 0x1.73dcc4p-1f, 0x1.b60264p-1f, 0x1.dd1deep-1f,
     0x1.f15cd0p-1f, 0x1.fa8c6cp-1f, 0x1.fe3316p-1f, 0x1.ff798cp-1f, 0x1.ffdd64p-1f, 0x1.fff826p-1f,
     0x1.fffe70p-1f, 0x1.ffffbap-1f, 0x1.fffff6p-1f, 0x1.fffffep-1f},
    {0x1.06eba8p-3f, 0x1.0e452ep+0f, 0x1.bab8b6p-1f, 0x1.3d5eb8p-1f, 0x1.8e78d8p-2f, 0x1.b5c146p-3f,
     0x1.a4ebbep-4f, 0x1.6246d2p-5f, 0x1.055834p-6f, 0x1.514902p-8f, 0x1.7ceee0p-10f,
     0x1.787adcp-12f, 0x1.446f24p-14f, 0x1.e912a6p-17f, 0x1.4266e4p-19f, 0x1.7b3f8ap-22f},
    {-0x1.1cfa66p-25f, -0x1.16dcf0p-2f, -0x1.c8cfb2p-2f, -0x1.eb45fep-2f, -0x1.9b24fep-2f,
     -0x1.1a5252p-2f, -0x1.45c776p-3f, -0x1.3fe932p-4f, -0x1.0dac48p-5f, -0x1.8788d6p-7f,
     -0x1.eb584ap-9f, -0x1.0b16e8p-10f, -0x1.f64b88p-13f, -0x1.9a39f8p-15f, -0x1.234746p-17f,
     -0x1.6eedf6p-20f},
    {-0x1.81267ep-2f, -0x1.38672cp-2f, -0x1.141080p-3f, 0x1.4f3fe2p-5f, 0x1.2bf966p-3f,
     0x1.539f36p-3f, 0x1.0a09ccp-3f, 0x1.46210ep-4f, 0x1.4777e0p-5f, 0x1.12e64ap-6f, 0x1.86c146p-8f,
     0x1.d9e4bep-10f, 0x1.eb5baap-12f, 0x1.b65664p-14f, 0x1.515b86p-16f, 0x1.c9737cp-19f},
    {-0x1.a0e62ap-14f, 0x1.0a7d8ap-3f, 0x1.77bfe0p-3f, 0x1.2713dep-3f, 0x1.dd5972p-5f,
     -0x1.ed12b4p-7f, -0x1.853d02p-5f, -0x1.77b4d8p-5f, -0x1.f00506p-6f, -0x1.fbb866p-7f,
     -0x1.a622f6p-8f, -0x1.23b45ep-9f, -0x1.528a32p-11f, -0x1.4d852ep-13f, -0x1.188ac6p-15f,
     -0x1.9b6b6cp-18f},
    {0x1.d448bep-4f, 0x1.3e4ef4p-4f, 0x1.675eaep-9f, -0x1.ce2a82p-5f, -0x1.1513bcp-4f,
     -0x1.578f34p-5f, -0x1.3d6c94p-7f, 0x1.2a55acp-7f, 0x1.a7d994p-7f, 0x1.326c72p-7f,
     0x1.3f6d52p-8f, 0x1.05e0a4p-9f, 0x1.5d702ap-11f, 0x1.83b950p-13f, 0x1.6a07cap-15f,
     0x1.2131c6p-17f},
    {-0x1.51ab4ap-7f, -0x1.515844p-5f, -0x1.926136p-5f, -0x1.840f18p-6f, 0x1.fc17b0p-8f,
     0x1.676ab4p-6f, 0x1.1f6a98p-6f, 0x1.b5945ep-8f, -0x1.ba3898p-11f, -0x1.950d7ep-9f,
     -0x1.418af4p-9f, -0x1.505464p-10f, -0x1.0ba9d6p-11f, -0x1.55a38ap-13f, -0x1.66def2p-15f,
     -0x1.55c91ap-17f},
};

static const float tanh_pieces[2 + TERMS][32] = {
    {0x0.0p+0f,      0x1.29c8a0p-2f, 0x1.29c5a8p-1f, 0x1.beb784p-1f, 0x1.29c4e0p+0f, 0x1.743e4cp+0f,
     0x1.beb81ap+0f, 0x1.0489f6p+1f, 0x1.29c5aap+1f, 0x1.4f01c4p+1f, 0x1.743e5cp+1f, 0x1.997a6ap+1f,
     0x1.beb7aep+1f, 0x1.e3f4b2p+1f, 0x1.0489dcp+2f, 0x1.1729e2p+2f, 0x1.29c58ap+2f, 0x1.3c64d2p+2f,
     0x1.4f0254p+2f, 0x1.61aa20p+2f, 0x1.74515ep+2f, 0x1.86ef00p+2f, 0x1.997a5ap+2f, 0x1.ac189ap+2f,
     0x1.bec316p+2f, 0x1.d1939cp+2f, 0x1.e431dcp+2f, 0x1.f6d01ep+2f, 0x1.048850p+3f, 0x1.0dd770p+3f,
     0x1.172692p+3f, 0x1.20b430p+3f},
    {0x0.0p+0f,      0x1.21a9fcp-2f, 0x1.0c31c8p-1f, 0x1.67c04cp-1f, 0x1.a4e5fcp-1f, 0x1.cb0180p-1f,
     0x1.e1b0fcp-1f, 0x1.eed26ap-1f, 0x1.f653d4p-1f, 0x1.fa924ap-1f, 0x1.fcf580p-1f, 0x1.fe4c54p-1f,
     0x1.ff0c58p-1f, 0x1.ff77c6p-1f, 0x1.ffb3b6p-1f, 0x1.ffd55ep-1f, 0x1.ffe82ap-1f, 0x1.fff2aep-1f,
     0x1.fff88ep-1f, 0x1.fffbd8p-1f, 0x1.fffdaep-1f, 0x1.fffeb4p-1f, 0x1.ffff46p-1f, 0x1.ffff98p-1f,
     0x1.ffffc6p-1f, 0x1.ffffe0p-1f, 0x1.ffffeep-1f, 0x1.fffff6p-1f, 0x1.fffffap-1f, 0x1.fffffcp-1f,
     0x1.fffffep-1f, 0x1.000000p+0f},
    {0x1.0562cap-32f, 0x1.d707d8p-1f,  0x1.7383dep-1f,  0x1.03398ep-1f,  0x1.4bfc8ep-2f,
     0x1.92033ep-3f,  0x1.d695cap-4f,  0x1.0e3d08p-4f,  0x1.329908p-5f,  0x1.5995fep-6f,
     0x1.841812p-7f,  0x1.b2f2a2p-8f,  0x1.e6dc0cp-9f,  0x1.104fc2p-9f,  0x1.311146p-10f,
     0x1.5501c8p-11f, 0x1.7d5726p-12f, 0x1.aa3a94p-13f, 0x1.dc7cc8p-14f, 0x1.09ff20p-14f,
     0x1.28ffc8p-15f, 0x1.4c0098p-16f, 0x1.73f56ep-17f, 0x1.9fc346p-18f, 0x1.d0080cp-19f,
     0x1.01c08ep-19f, 0x1.201b24p-20f, 0x1.4208bap-21f, 0x1.6c19c0p-22f, 0x1.96fa70p-23f,
     0x1.c6e78ep-24f, 0x1.f4c6d2p-25f},
    {-0x1.f9995ep-24f, -0x1.0a7c50p-2f,  -0x1.85364ap-2f,  -0x1.6c486ep-2f,  -0x1.10ea4cp-2f,
     -0x1.686716p-3f,  -0x1.baba64p-4f,  -0x1.052bf2p-4f,  -0x1.2cce3ep-5f,  -0x1.55ebfap-6f,
     -0x1.81c9f8p-7f,  -0x1.b18088p-8f,  -0x1.e5f45ap-9f,  -0x1.10074ep-9f,  -0x1.30e3d0p-10f,
     -0x1.54e562p-11f, -0x1.7d4564p-12f, -0x1.aa2f7ep-13f, -0x1.dc75dap-14f, -0x1.09fcf6p-14f,
     -0x1.28fe70p-15f, -0x1.4bffc2p-16f, -0x1.73f4e6p-17f, -0x1.9fc2f0p-18f, -0x1.d007d8p-19f,
     -0x1.01c07ep-19f, -0x1.201b1ap-20f, -0x1.4208b4p-21f, -0x1.6c19bcp-22f, -0x1.96fa6ep-23f,
     -0x1.c6e78cp-24f, -0x1.f4c6d4p-25f},
    {-0x1.5552dap-2f, -0x1.dd4624p-3f, -0x1.5e77f4p-5f, 0x1.4c8f4ap-4f,  0x1.c6c600p-4f,
     0x1.7a31eap-4f,  0x1.03a912p-4f,  0x1.44a910p-5f,  0x1.81d8eep-6f,  0x1.be339ap-7f,
     0x1.fc43a2p-8f,  0x1.1f13d4p-8f,  0x1.42c364p-9f,  0x1.69f2eep-10f, 0x1.960b72p-11f,
     0x1.c63aeep-12f, 0x1.fc2c92p-13f, 0x1.1c1088p-13f, 0x1.3d9a46p-14f, 0x1.62a06cp-15f,
     0x1.8bf9d8p-16f, 0x1.baa78ep-17f, 0x1.efef30p-18f, 0x1.152bdap-18f, 0x1.3559e8p-19f,
     0x1.57aabcp-20f, 0x1.80238ep-21f, 0x1.ad6056p-22f, 0x1.e57704p-23f, 0x1.0f5148p-23f,
     0x1.2f44a8p-24f, 0x1.4dd9c2p-25f},
    {-0x1.240eaep-12f, 0x1.38a6dep-3f,   0x1.315c46p-3f,   0x1.f8157cp-5f,   -0x1.3ebfdcp-9f,
     -0x1.8b1c50p-6f,  -0x1.82d8fcp-6f,  -0x1.174e14p-6f,  -0x1.640aeap-7f,  -0x1.ab0c5ap-8f,
     -0x1.f01c18p-9f,  -0x1.1b3f78p-9f,  -0x1.405c3ap-10f, -0x1.6871e0p-11f, -0x1.951a68p-12f,
     -0x1.c5a4cep-13f, -0x1.fbcf64p-14f, -0x1.1bf3c4p-14f, -0x1.3d88b8p-15f, -0x1.6295aep-16f,
     -0x1.8bf342p-17f, -0x1.baa3c2p-18f, -0x1.efedd8p-19f, -0x1.152bcap-19f, -0x1.3559fep-20f,
     -0x1.57a9cap-21f, -0x1.8022acp-22f, -0x1.ad5f74p-23f, -0x1.e57982p-24f, -0x1.0f52b0p-24f,
     -0x1.2f463ep-25f, -0x1.4dd330p-26f},
    {0x1.18adfcp-3f,  0x1.c0bbe4p-5f,  -0x1.7efb2cp-5f, -0x1.e0caa2p-5f, -0x1.c95d8cp-6f,
     -0x1.433df6p-8f, 0x1.d44b16p-9f,  0x1.34eeeep-8f,  0x1.dd45b2p-9f,  0x1.37f686p-9f,
     0x1.7a6eacp-10f, 0x1.ba1e92p-11f, 0x1.fa4aa0p-12f, 0x1.1ec526p-12f, 0x1.4383cep-13f,
     0x1.6b0b1cp-14f, 0x1.96de2ap-15f, 0x1.c750a4p-16f, 0x1.fd595cp-17f, 0x1.1c7354p-17f,
     0x1.3dac0ep-18f, 0x1.632756p-19f, 0x1.8deb8cp-20f, 0x1.bccc4ap-21f, 0x1.f07336p-22f,
     0x1.13c358p-22f, 0x1.343d6cp-23f, 0x1.588a4ep-24f, 0x1.8589bep-25f, 0x1.b3696ep-26f,
     0x1.e6afcep-27f, 0x1.0b7c48p-27f},
    {-0x1.789924p-6f,  -0x1.2401f4p-4f,  -0x1.0f723cp-5f,  0x1.a26e6cp-7f,   0x1.2146d2p-6f,
     0x1.14aac2p-7f,   0x1.0f62f6p-9f,   -0x1.383da2p-12f, -0x1.907bc8p-11f, -0x1.50c884p-11f,
     -0x1.c4bbc2p-12f, -0x1.15e642p-12f, -0x1.468968p-13f, -0x1.770feep-14f, -0x1.a9ad5ap-15f,
     -0x1.dfc516p-16f, -0x1.0d645ap-16f, -0x1.2de3dap-17f, -0x1.51eecep-18f, -0x1.79f860p-19f,
     -0x1.a69adcp-20f, -0x1.d87eeep-21f, -0x1.083176p-21f, -0x1.275418p-22f, -0x1.4a0d20p-23f,
     -0x1.709adcp-24f, -0x1.9c04bap-25f, -0x1.cc8ad6p-26f, -0x1.01cf82p-26f, -0x1.202bf8p-27f,
     -0x1.421ba4p-28f, -0x1.7326d4p-29f},
};

static const pieces erf_of = {16,
                              3.875,
                              3.96875,
                              {erf_pieces[0], erf_pieces[1], erf_pieces[2], erf_pieces[3],
                               erf_pieces[4], erf_pieces[5], erf_pieces[6], erf_pieces[7]}};
static const pieces tanh_of = {32,
                               3.4375,
                               9.125,
                               {tanh_pieces[0], tanh_pieces[1], tanh_pieces[2], tanh_pieces[3],
                                tanh_pieces[4], tanh_pieces[5], tanh_pieces[6], tanh_pieces[7]}};

/* Q(a) = 1 - Phi(a), the upper tail of the normal distribution, or the same by tanh: pieces of
 * width 1/4, ascending coefficients; the last piece is 0. */
static const float tail_pieces[1 + TAIL_TERMS][32] = {
    {0x1.0p-1f,       0x1.9aecbap-2f,  0x1.3bf144p-2f,  0x1.d022p-3f,
     0x1.44ed0cp-3f,  0x1.b0bdd2p-4f,  0x1.11a46ep-4f,  0x1.482a24p-5f,
     0x1.74bcf8p-6f,  0x1.90925p-7f,   0x1.96f4e6p-8f,  0x1.869044p-9f,
     0x1.61de2p-10f,  0x1.2e86fep-11f, 0x1.e7dbcap-13f, 0x1.72d956p-14f,
     0x1.09ad7ap-15f, 0x1.66a5bcp-17f, 0x1.c80728p-19f, 0x1.11056ep-20f,
     0x1.33ca3p-22f,  0x1.46a16cp-24f, 0x1.463cfap-26f, 0x1.32a35ep-28f,
     0x1.0f30fp-30f,  0x1.c34c28p-33f, 0x1.61404cp-35f, 0x1.04178ap-37f,
     0x1.683c36p-40f, 0x1.d53e3ep-43f, 0x1.1f68f4p-45f, 0},
    {-0x1.988452p-2f,  -0x1.8bf28ep-2f,  -0x1.6883b8p-2f,  -0x1.345d6p-2f,
     -0x1.ef8e82p-3f,  -0x1.7610f6p-3f,  -0x1.0940c2p-3f,  -0x1.6164acp-4f,
     -0x1.ba4bap-5f,   -0x1.0402f2p-5f,  -0x1.1f2edp-6f,   -0x1.29f99ep-7f,
     -0x1.2270aap-8f,  -0x1.09f158p-9f,  -0x1.c9839p-11f,  -0x1.71b22ap-12f,
     -0x1.18a216p-13f, -0x1.903c8cp-15f, -0x1.0c1cdcp-16f, -0x1.517176p-18f,
     -0x1.8ef75p-20f,  -0x1.bb1f16p-22f, -0x1.ce56c6p-24f, -0x1.c52828p-26f,
     -0x1.a13d8cp-28f, -0x1.68e38p-30f,  -0x1.253ae6p-32f, -0x1.bfa1dep-35f,
     -0x1.40f5dp-37f,  -0x1.b05f1ep-40f, -0x1.11938p-42f,  0},
    {-0x1.452ed6p-18f, 0x1.8bf26cp-5f,  0x1.688392p-4f,  0x1.ce8bdp-4f,
     0x1.ef8e3p-4f,    0x1.d394dcp-4f,  0x1.8de0d6p-4f,  0x1.3537e4p-4f,
     0x1.ba4b7ap-5f,   0x1.248364p-5f,  0x1.66fafp-6f,   0x1.99b848p-7f,
     0x1.b3aafap-8f,   0x1.b02b4ap-9f,  0x1.905762p-10f, 0x1.5a9c4p-11f,
     0x1.18a7dep-12f,  0x1.a94bf8p-14f, 0x1.2dab32p-15f, 0x1.90c8fp-17f,
     0x1.f2d1a2p-19f,  0x1.22e1p-20f,   0x1.3df74p-22f,  0x1.45d728p-24f,
     0x1.3915cp-26f,   0x1.1a1c3cp-28f, 0x1.dcd4a4p-31f, 0x1.79ffa2p-33f,
     0x1.191bb2p-35f,  0x1.884542p-38f, 0x1.00ce2ep-40f, 0},
    {0x1.112394p-4f,   0x1.ed950ap-5f,   0x1.67c84p-5f,    0x1.67cdep-6f,
     0x1.49639cp-14f,  -0x1.16a31cp-6f,  -0x1.b83626p-6f,  -0x1.e48906p-6f,
     -0x1.b992d2p-6f,  -0x1.5ff30ep-6f,  -0x1.f6fecep-7f,  -0x1.46a14cp-7f,
     -0x1.84ad66p-8f,  -0x1.aa134ap-9f,  -0x1.afe7bap-10f, -0x1.95f73cp-11f,
     -0x1.628f1ep-12f, -0x1.20311ap-13f, -0x1.b490b2p-15f, -0x1.347166p-16f,
     -0x1.96e51ep-18f, -0x1.f577e6p-20f, -0x1.20db4p-21f,  -0x1.37396p-23f,
     -0x1.39bdc6p-25f, -0x1.2807dcp-27f, -0x1.058576p-29f, -0x1.b0bf4cp-32f,
     -0x1.4f66dep-34f, -0x1.e72444p-37f, -0x1.4b88bep-39f, 0},
    {-0x1.45d3cep-9f, -0x1.82775p-7f,  -0x1.497daap-6f, -0x1.76d922p-6f,
     -0x1.49b9dep-6f, -0x1.bfbad4p-7f, -0x1.8eb768p-8f, 0x1.8185fap-12f,
     0x1.252324p-8f,  0x1.90efbap-8f,  0x1.843c98p-8f,  0x1.376768p-8f,
     0x1.b3f348p-9f,  0x1.10d904p-9f,  0x1.3585dcp-10f, 0x1.40e488p-11f,
     0x1.31be06p-12f, 0x1.0cc874p-13f, 0x1.b551e6p-15f, 0x1.49f4d4p-16f,
     0x1.ce95d2p-18f, 0x1.2daefcp-19f, 0x1.6e8378p-21f, 0x1.9f219ep-23f,
     0x1.b6b678p-25f, 0x1.b0e07ap-27f, 0x1.8f0312p-29f, 0x1.57c35ep-31f,
     0x1.14ee38p-33f, 0x1.a15cecp-36f, 0x1.2649b4p-38f, 0},
};

static const float tanh_tail_pieces[1 + TAIL_TERMS][32] = {
    {0x1.0p-1f,       0x1.9aee04p-2f,  0x1.3bfa4cp-2f,  0x1.d0523p-3f,
     0x1.453d22p-3f,  0x1.b1795ep-4f,  0x1.123c8ep-4f,  0x1.48a34ap-5f,
     0x1.73ef8ap-6f,  0x1.8c25e8p-7f,  0x1.8b6cccp-8f,  0x1.701acep-9f,
     0x1.3dd716p-10f, 0x1.fa1996p-12f, 0x1.71379ap-13f, 0x1.ea7566p-15f,
     0x1.26a204p-16f, 0x1.3e0c9ap-18f, 0x1.326b18p-20f, 0x1.05b8ccp-22f,
     0x1.89ba44p-25f, 0x1.0311fp-27f,  0x1.28401cp-30f, 0x1.2467ep-33f,
     0x1.eee7f8p-37f, 0x1.64b37cp-40f, 0x1.b2ff12p-44f, 0x1.bdca72p-48f,
     0x1.7d5c46p-52f, 0x1.0e8446p-56f, 0x1.3c1ad6p-61f, 0},
    {-0x1.988452p-2f,  -0x1.8be386p-2f,  -0x1.68542p-2f,   -0x1.341906p-2f,
     -0x1.ef266p-3f,   -0x1.76152p-3f,   -0x1.09c7e8p-3f,  -0x1.631938p-4f,
     -0x1.bda5d6p-5f,  -0x1.0628aep-5f,  -0x1.2042e2p-6f,  -0x1.26ff36p-7f,
     -0x1.178a98p-8f,  -0x1.e7bb5p-10f,  -0x1.85407ap-11f, -0x1.1a569ap-12f,
     -0x1.71c0eep-14f, -0x1.b233d6p-16f, -0x1.c61f76p-18f, -0x1.a42c3ep-20f,
     -0x1.559d94p-22f, -0x1.e4dd9ap-25f, -0x1.2a5748p-27f, -0x1.3c343p-30f,
     -0x1.1eb6b8p-33f, -0x1.b9da52p-37f, -0x1.1f652p-40f,  -0x1.397736p-44f,
     -0x1.1cbceep-48f, -0x1.abe2a4p-53f, -0x1.082016p-57f, 0},
    {-0x1.4c93d2p-18f, 0x1.8dafb4p-5f,  0x1.6983bcp-4f,  0x1.ceb302p-4f,
     0x1.ee60dep-4f,   0x1.d18602p-4f,  0x1.8c0a84p-4f,  0x1.3490aep-4f,
     0x1.bbc08ep-5f,   0x1.279b82p-5f,  0x1.6d2572p-6f,  0x1.a17908p-7f,
     0x1.b82b62p-8f,   0x1.a9d818p-9f,  0x1.77c7p-10f,   0x1.2c8052p-11f,
     0x1.b0a0cep-13f,  0x1.1671b4p-14f, 0x1.3e4f38p-16f, 0x1.410204p-18f,
     0x1.1bb2a8p-20f,  0x1.b48dd8p-23f, 0x1.2280d6p-25f, 0x1.4c3582p-28f,
     0x1.444d2ep-31f,  0x1.0c7cb6p-34f, 0x1.768fb2p-38f, 0x1.b56486p-42f,
     0x1.a8bc3ep-46f,  0x1.54ba12p-50f, 0x1.c0a49cp-55f, 0},
    {0x1.12814ap-4f,   0x1.ef25d8p-5f,   0x1.66c6a2p-5f,   0x1.6153bap-6f,
     -0x1.57a46cp-12f, -0x1.18a334p-6f,  -0x1.b40508p-6f,  -0x1.dcf81ep-6f,
     -0x1.b3405cp-6f,  -0x1.5dd0dap-6f,  -0x1.fac5cap-7f,  -0x1.4e0cacp-7f,
     -0x1.91c70ep-8f,  -0x1.b81b1ep-9f,  -0x1.b536e2p-10f, -0x1.87b9ep-11f,
     -0x1.3a9562p-12f, -0x1.c1fe78p-14f, -0x1.1cce3ap-15f, -0x1.3cff86p-17f,
     -0x1.344acp-19f,  -0x1.045794p-21f, -0x1.7b6c34p-24f, -0x1.da3386p-27f,
     -0x1.f91346p-30f, -0x1.c79c24p-33f, -0x1.59e7f2p-36f, -0x1.b74c2ap-40f,
     -0x1.cfb2d4p-44f, -0x1.94409ep-48f, -0x1.213eb4p-52f, 0},
    {-0x1.4d408ep-9f, -0x1.8ac216p-7f, -0x1.4f06cp-6f,  -0x1.799e44p-6f,
     -0x1.4735dp-6f,  -0x1.b3477ap-7f, -0x1.79157p-8f,  0x1.c44ecap-12f,
     0x1.18394ap-8f,  0x1.7e79d6p-8f,  0x1.77d97cp-8f,  0x1.353112p-8f,
     0x1.bdafbap-9f,  0x1.1de16ap-9f,  0x1.47a0c8p-10f, 0x1.4edc34p-11f,
     0x1.2ffad4p-12f, 0x1.e7aa8p-14f,  0x1.57bf16p-15f, 0x1.a771f2p-17f,
     0x1.c533bap-19f, 0x1.a3035cp-21f, 0x1.4cba5cp-23f, 0x1.c3333p-26f,
     0x1.03af18p-28f, 0x1.f87462p-32f, 0x1.9af666p-35f, 0x1.171e06p-38f,
     0x1.3a2a42p-42f, 0x1.233832p-46f, 0x1.b9e63ep-51f, 0},
};

static em_val row_of(em *e, const float *x) {
    em_val lane[16];
    for (int i = 0; i < 16; i++) lane[i] = LLVMConstReal(e->f32, (double)x[i]);
    return LLVMConstVector(lane, 16);
}

static em_val look_up_32(em *e, const float *table, em_val index) {
    em_val low = row_of(e, table), high = row_of(e, table + 16);
    return em_intrinsic(e, "llvm.x86.avx512.vpermi2var.ps.512", NULL, 0,
                        (em_val[]){low, index, high}, 3);
}

static em_val look_up(em *e, const pieces *p, int row, em_val index) {
    if (p->n == 32) return look_up_32(e, p->table[row], index);
    em_val low = row_of(e, p->table[row]);
    return em_intrinsic(e, "llvm.x86.avx512.permvar.sf.512", NULL, 0, (em_val[]){low, index}, 2);
}

/* The piece of 0 is t + t q(t) with t = |x|: small arguments keep their relative accuracy. */
static em_val emit_pieces(em *e, const pieces *p, em_val x) {
    em_val a = em_min(e, em_like(e, x, p->end), em_abs(e, x)); /* NaN stays */
    em_val scaled = em_fma(e, a, em_like(e, x, p->per_unit), em_like(e, x, 0x1.8p23));
    em_val index = em_bitcast(e, scaled, em_vec(e->i32, 16)); /* the low bits: the nearest piece */
    em_val t = em_sub(e, a, look_up(e, p, 0, index)), q = look_up(e, p, 1 + TERMS, index);
    for (int i = TERMS; i > 1; i--) q = em_fma(e, q, t, look_up(e, p, i, index));
    /* by the index that was looked up: half a piece's width need not be a float */
    em_val first = em_cmp(e, EM_EQ, scaled, em_like(e, x, 0x1.8p23));
    em_val y = em_fma(e, q, t, em_select(e, first, t, look_up(e, p, 1, index)));
    em_type type = LLVMTypeOf(x);
    return em_intrinsic(e, "llvm.copysign", &type, 1, (em_val[]){y, x}, 2);
}

bool vmath_has_pieces(em *e, em_val x) {
    return e->target->has_avx512 && em_lanes_of(x) == 16 && em_elem_type(x) == e->f32;
}

em_val vmath_erf_pieces(em *e, em_val x) {
    return emit_pieces(e, &erf_of, x);
}

em_val vmath_tanh_pieces(em *e, em_val x) {
    return emit_pieces(e, &tanh_of, x);
}

/* max(x, 0) - a Q(a) for a = |x|: the graph of gelu(x) - max(x, 0) is even. */
em_val vmath_gelu_pieces(em *e, em_val x, bool by_tanh) {
    const float(*table)[32] = by_tanh ? tanh_tail_pieces : tail_pieces;
    em_val all = LLVMConstAllOnes(e->i16), zero = em_zero(LLVMTypeOf(x));
    /* the smaller magnitude, without sign: the end for NaN, which max(0, x) keeps */
    em_val bound[] = {x, em_like(e, x, 7.75), em_i32(e, 2 | 2 << 2), zero, all, em_i32(e, 4)};
    em_val a = em_intrinsic(e, "llvm.x86.avx512.mask.range.ps.512", NULL, 0, bound, 6);
    em_val scaled = em_fma(e, a, em_like(e, x, 4), em_like(e, x, 0x1.8p23));
    em_val index = em_bitcast(e, scaled, em_vec(e->i32, 16)); /* the low bits: the nearest piece */
    /* what is left of a above or below the nearest multiple of 2^-2 */
    em_val rest[] = {a, em_i32(e, 2 << 4), zero, all, em_i32(e, 4)};
    em_val t = em_intrinsic(e, "llvm.x86.avx512.mask.reduce.ps.512", NULL, 0, rest, 5);
    em_val q = look_up_32(e, table[TAIL_TERMS], index);
    for (int i = TAIL_TERMS - 1; i >= 0; i--) q = em_fma(e, q, t, look_up_32(e, table[i], index));
    return em_fma(e, em_neg(e, a), q, em_max(e, zero, x));
}
