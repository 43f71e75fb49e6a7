/* vmath_pieces.c: erf and tanh of 16 floats by tables in registers.
 * |x| falls into one of 32 pieces, whose width doubles every eight; each is a polynomial in the
 * distance from its centre whose coefficients are looked up by one instruction each. Centres are
 * chosen so that the value there is nearly a float (Gal, 1986); coefficients are minimax for the
 * relative error, rounded from the highest down, the lower ones fitted again each time. */
#include "codegen/emit/vmath_impl.h"

enum { PIECES = 32, TERMS = 4 };

typedef struct pieces {
    double per_unit;                /* the first eight pieces end at 2 / per_unit */
    double end;                     /* from here on the result rounds to 1 */
    bool slope_one;                 /* at 0 */
    float table[2 + TERMS][PIECES]; /* centres, values there, coefficients of t, t^2, ... */
} pieces;

/* The first piece of erf is t + t q(t): its coefficient of t is less by 1. */
static const pieces erf_of = {
    7.5,
    3.9375,
    false,
    {
        {
            0.0f,           0x1.999216p-5f, 0x1.999216p-5f, 0x1.ddf454p-4f, 0x1.ddf454p-4f,
            0x1.7773fap-3f, 0x1.bbb9a6p-3f, 0x1.bbb9a6p-3f, 0x1.bbb9a6p-3f, 0x1.77725p-2f,
            0x1.bbbe5cp-2f, 0x1.bbbe5cp-2f, 0x1.220ca4p-1f, 0x1.445b26p-1f, 0x1.665e66p-1f,
            0x1.887392p-1f, 0x1.bbcb6p-1f,  0x1.00132p+0f,  0x1.222decp+0f, 0x1.444cc2p+0f,
            0x1.665d22p+0f, 0x1.8872aap+0f, 0x1.aaa37cp+0f, 0x1.ccc54ap+0f, 0x1.fff7p+0f,
            0x1.222fd4p+1f, 0x1.44398p+1f,  0x1.666d0ep+1f, 0x1.887c4ep+1f, 0x1.887c4ep+1f,
            0x1.ccb712p+1f, 0x1.ccb712p+1f,
        },
        {
            0.0f,           0x1.cdc426p-5f, 0x1.cdc426p-5f, 0x1.0c702p-3f,  0x1.0c702p-3f,
            0x1.a2f468p-3f, 0x1.ecf6fcp-3f, 0x1.ecf6fcp-3f, 0x1.ecf6fcp-3f, 0x1.956778p-2f,
            0x1.d70eeep-2f, 0x1.d70eeep-2f, 0x1.27671cp-1f, 0x1.42685p-1f,  0x1.5b033ap-1f,
            0x1.717a6ap-1f, 0x1.8f3944p-1f, 0x1.af865ap-1f, 0x1.c83a94p-1f, 0x1.da843ep-1f,
            0x1.e78ef8p-1f, 0x1.f08eeep-1f, 0x1.f6905ep-1f, 0x1.fa6968p-1f, 0x1.fd9a82p-1f,
            0x1.ff4facp-1f, 0x1.ffd358p-1f, 0x1.fff62ep-1f, 0x1.fffe1ap-1f, 0x1.fffe1ap-1f,
            0x1.fffff4p-1f, 0x1.fffff4p-1f,
        },
        {
            0x1.06eba8p-3f,  0x1.2024d8p+0f,  0x1.2024d6p+0f,  0x1.1cf56p+0f,   0x1.1cf55ep+0f,
            0x1.17516ap+0f,  0x1.139e4ap+0f,  0x1.139e48p+0f,  0x1.139e14p+0f,  0x1.f90f5p-1f,
            0x1.ded164p-1f,  0x1.ded15cp-1f,  0x1.a32154p-1f,  0x1.82bf9ep-1f,  0x1.61f684p-1f,
            0x1.410afp-1f,   0x1.108a8ap-1f,  0x1.a8d28cp-2f,  0x1.3fb4d6p-2f,  0x1.d0588cp-3f,
            0x1.45a45p-3f,   0x1.b8be1ep-4f,  0x1.1f79ap-4f,   0x1.6a2afp-5f,   0x1.52c5ep-6f,
            0x1.b13fc6p-8f,  0x1.e37ca6p-10f, 0x1.d1064ap-12f, 0x1.865cecp-14f, 0x1.80b5f2p-14f,
            0x1.6565a2p-19f, 0x1.5f51fcp-19f,
        },
        {
            0x1.109dbp-20f,   -0x1.cd0074p-5f,  -0x1.ccdf44p-5f,  -0x1.0a026ap-3f,
            -0x1.09fb06p-3f,  -0x1.99a70ep-3f,  -0x1.ddbabp-3f,   -0x1.ddb496p-3f,
            -0x1.dd630ap-3f,  -0x1.725cp-2f,    -0x1.9efc7ep-2f,  -0x1.9ef7f8p-2f,
            -0x1.dae06cp-2f,  -0x1.ea045cp-2f,  -0x1.ef8102p-2f,  -0x1.ec291p-2f,
            -0x1.d8783ap-2f,  -0x1.a8f252p-2f,  -0x1.6a6438p-2f,  -0x1.261dacp-2f,
            -0x1.c7da46p-3f,  -0x1.51d45p-3f,   -0x1.df17bp-4f,   -0x1.45ef9ap-4f,
            -0x1.52c5a6p-5f,  -0x1.eb2734p-7f,  -0x1.323aa2p-8f,  -0x1.459e68p-10f,
            -0x1.2b5eb4p-12f, -0x1.112558p-12f, -0x1.41e006p-17f, -0x1.2170d2p-17f,
        },
        {
            -0x1.814fe2p-2f, -0x1.7e3dfep-2f, -0x1.7f061ep-2f, -0x1.7191f4p-2f, -0x1.724e62p-2f,
            -0x1.5b5d8ep-2f, -0x1.4cf5a8p-2f, -0x1.4d9194p-2f, -0x1.504294p-2f, -0x1.ec41e8p-3f,
            -0x1.8e9722p-3f, -0x1.8f8458p-3f, -0x1.9057aep-4f, -0x1.975dd6p-5f, -0x1.34e47p-8f,
            0x1.2b4746p-5f,  0x1.6bcb78p-4f,  0x1.1ac386p-3f,  0x1.4de0dep-3f,  0x1.557cfap-3f,
            0x1.3c8ff8p-3f,  0x1.0fad94p-3f,  0x1.b47c3cp-4f,  0x1.4aed9ap-4f,  0x1.8d911p-5f,
            0x1.52d1dp-6f,   0x1.e4f652p-8f,  0x1.23456cp-9f,  0x1.2aa084p-11f, 0x1.96dafcp-12f,
            0x1.84d904p-16f, 0x1.f4a14cp-17f,
        },
        {
            0x1.ead7d6p-8f,   0x1.d6ae72p-6f,   0x1.6147dep-5f,  0x1.066528p-4f,  0x1.417122p-4f,
            0x1.9316fep-4f,   0x1.cea504p-4f,   0x1.fe3ef6p-4f,  0x1.1e4feep-3f,  0x1.525eb8p-3f,
            0x1.6ba6e6p-3f,   0x1.757dc4p-3f,   0x1.7518acp-3f,  0x1.6842fcp-3f,  0x1.49516p-3f,
            0x1.2994bap-3f,   0x1.d7c7bcp-4f,   0x1.1bbbdcp-4f,  0x1.a33008p-6f,  -0x1.41f38ap-7f,
            -0x1.161b6p-5f,   -0x1.7df084p-5f,  -0x1.978598p-5f, -0x1.76286ep-5f, -0x1.1a13d8p-5f,
            -0x1.2bb4d6p-6f,  -0x1.fa7368p-8f,  -0x1.5e0a9ap-9f, -0x1.92947p-11f, -0x1.026e88p-12f,
            -0x1.3daa7ep-15f, -0x1.7100b2p-17f,
        },
    }};

static const pieces tanh_of = {
    3.25,
    9.0625,
    true,
    {
        {
            0.0f,           0x1.d89438p-4f, 0x1.89d89ep-3f, 0x1.13b13cp-2f, 0x1.627628p-2f,
            0x1.b14194p-2f, 0x1.fff858p-2f, 0x1.275bd6p-1f, 0x1.6270f2p-1f, 0x1.b12e44p-1f,
            0x1p+0f,        0x1.277542p+0f, 0x1.4ec4ecp+0f, 0x1.762a32p+0f, 0x1.9d98b2p+0f,
            0x1.c4dee8p+0f, 0x1.000b02p+1f, 0x1.27781cp+1f, 0x1.4ec15ap+1f, 0x1.763c7cp+1f,
            0x1.9d958ep+1f, 0x1.c4ec84p+1f, 0x1.ec4d62p+1f, 0x1.09d884p+2f, 0x1.276322p+2f,
            0x1.4ec664p+2f, 0x1.761712p+2f, 0x1.9d80aep+2f, 0x1.c4d1ecp+2f, 0x1.ec3fa6p+2f,
            0x1.0a2b24p+3f, 0x1.154246p+3f,
        },
        {
            0.0f,           0x1.d67e4p-4f,  0x1.850fd4p-3f, 0x1.0d38p-2f,   0x1.54f384p-2f,
            0x1.992114p-2f, 0x1.d92f38p-2f, 0x1.0a706p-1f,  0x1.32e968p-1f, 0x1.60c51p-1f,
            0x1.85efacp-1f, 0x1.a36384p-1f, 0x1.ba359ep-1f, 0x1.cbc152p-1f, 0x1.d9148ep-1f,
            0x1.e312c6p-1f, 0x1.ed9822p-1f, 0x1.f5f9fep-1f, 0x1.fa8cd8p-1f, 0x1.fd0d4cp-1f,
            0x1.fe675cp-1f, 0x1.ff22d8p-1f, 0x1.ff886cp-1f, 0x1.ffbf5ep-1f, 0x1.ffe652p-1f,
            0x1.fff88p-1f,  0x1.fffdcep-1f, 0x1.ffff5cp-1f, 0x1.ffffdp-1f,  0x1.fffff2p-1f,
            0x1.fffffcp-1f, 0x1.fffffep-1f,
        },
        {
            0x1p+0f,         0x1.f93e96p-1f,  0x1.ed85b8p-1f,  0x1.dc9c28p-1f,  0x1.c73d08p-1f,
            0x1.ae44aap-1f,  0x1.92ac0ep-1f,  0x1.755924p-1f,  0x1.4806aep-1f,  0x1.0cf0d4p-1f,
            0x1.ae0dc2p-2f,  0x1.50f12cp-2f,  0x1.0422cep-2f,  0x1.8ca26ap-3f,  0x1.2b8612p-3f,
            0x1.c1c09ep-4f,  0x1.2131ecp-4f,  0x1.3d9b26p-5f,  0x1.5aed1p-6f,   0x1.7841ep-7f,
            0x1.97fea4p-8f,  0x1.b9eeacp-9f,  0x1.de155cp-10f, 0x1.02773cp-10f, 0x1.9a80ep-12f,
            0x1.dfcf9ap-14f, 0x1.18e564p-15f, 0x1.47e0f6p-17f, 0x1.7fd71ep-19f, 0x1.bfdd98p-21f,
            0x1.ffd28ep-23f, 0x1.000cfep-23f,
        },
        {
            0x1.72d1bp-17f,   -0x1.d0481ep-4f,  -0x1.7711fap-3f,  -0x1.f53f2ep-3f,
            -0x1.2f2d78p-2f,  -0x1.57d1a4p-2f,  -0x1.74258cp-2f,  -0x1.849336p-2f,
            -0x1.894316p-2f,  -0x1.729a3ap-2f,  -0x1.478aap-2f,   -0x1.13fef8p-2f,
            -0x1.c15242p-3f,  -0x1.642972p-3f,  -0x1.14c16ep-3f,  -0x1.a85666p-4f,
            -0x1.16cd18p-4f,  -0x1.3763b4p-5f,  -0x1.573c7ap-6f,  -0x1.76176ap-7f,
            -0x1.96b964p-8f,  -0x1.b9331ep-9f,  -0x1.dda69p-10f,  -0x1.023db2p-10f,
            -0x1.9aa4ap-12f,  -0x1.dfd4f2p-14f, -0x1.17de7p-15f,  -0x1.47eafep-17f,
            -0x1.809f58p-19f, -0x1.c08ca2p-21f, -0x1.ffab8cp-23f, -0x1.008e32p-23f,
        },
        {
            -0x1.563a36p-2f, -0x1.4347e4p-2f, -0x1.255d26p-2f, -0x1.f7a0fap-3f, -0x1.951f8ep-3f,
            -0x1.2af47p-3f,  -0x1.82155ep-4f, -0x1.760bf4p-5f, 0x1.095fa6p-6f,  0x1.2e608p-4f,
            0x1.a76acap-4f,  0x1.c62bfep-4f,  0x1.ad24fap-4f,  0x1.7714ep-4f,   0x1.37ca0ap-4f,
            0x1.f521cp-5f,   0x1.59e968p-5f,  0x1.90a5e8p-6f,  0x1.c23062p-7f,  0x1.efbf78p-8f,
            0x1.0efdccp-8f,  0x1.26cb6ep-9f,  0x1.3fb6aap-10f, 0x1.5979d4p-11f, 0x1.1b5038p-12f,
            0x1.477fdp-14f,  0x1.7f41d6p-16f, 0x1.bfaed2p-18f, 0x1.06020ep-19f, 0x1.31a586p-21f,
            0x1.5d4016p-23f, 0x1.52d57ap-24f,
        },
        {
            0x1.417c9p-6f,    0x1.2c46d2p-4f,   0x1.07abccp-3f,   0x1.3a3ec2p-3f,
            0x1.6fd7aep-3f,   0x1.5c7aep-3f,    0x1.5202dep-3f,   0x1.37499cp-3f,
            0x1.e3a54ep-4f,   0x1.1d50bap-4f,   0x1.e791f2p-6f,   -0x1.dfaea2p-11f,
            -0x1.40b34p-6f,   -0x1.8c9502p-6f,  -0x1.9d8dc6p-6f,  -0x1.7d8ae8p-6f,
            -0x1.2543e8p-6f,  -0x1.704924p-7f,  -0x1.ae2fdp-8f,   -0x1.e45586p-9f,
            -0x1.0b8d6ep-9f,  -0x1.30bc4p-10f,  -0x1.3e4c3ep-11f, -0x1.698e6ep-12f,
            -0x1.1744c8p-13f, -0x1.469fccp-15f, -0x1.9de98ep-17f, -0x1.be119cp-19f,
            -0x1.ea3a62p-21f, -0x1.1e101ep-22f, -0x1.62f178p-24f, -0x1.0def72p-25f,
        },
    }};

/* Q(a) = 1 - Phi(a), the upper tail of the normal distribution, or the same by tanh: pieces of
 * width 1/4, ascending coefficients; the last piece is 0. */
static const float tail_pieces[1 + TERMS][PIECES] = {
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

static const float tanh_tail_pieces[1 + TERMS][PIECES] = {
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

/* The low bits of the index count. */
static em_val look_up(em *e, const float *table, em_val index) {
    em_val low = row_of(e, table), high = row_of(e, table + 16);
    return em_intrinsic(e, "llvm.x86.avx512.vpermi2var.ps.512", NULL, 0,
                        (em_val[]){low, index, high}, 3);
}

/* The exponent of per_unit |x| + 2, from 1 to 4, and the three bits below it are the piece. */
static em_val emit_pieces(em *e, const pieces *p, em_val x) {
    em_val a = em_min(e, em_like(e, x, p->end), em_abs(e, x)); /* NaN stays */
    em_val octave = em_fma(e, a, em_like(e, x, p->per_unit), em_like(e, x, 2));
    em_val index = em_bitcast(e, octave, em_vec(e->i32, 16));
    index = em_lshr(e, index, em_like(e, index, 20));
    em_val t = em_sub(e, a, look_up(e, p->table[0], index));
    em_val y = look_up(e, p->table[1 + TERMS], index);
    for (int i = TERMS; i > 1; i--) y = em_fma(e, y, t, look_up(e, p->table[i], index));
    em_val value = look_up(e, p->table[1], index);
    if (!p->slope_one) { /* by what the index is made of: the piece's end need not be a float */
        em_val first = em_cmp(e, EM_LT, octave, em_like(e, x, 2.25));
        value = em_select(e, first, t, value);
    }
    em_type type = LLVMTypeOf(x);
    return em_intrinsic(e, "llvm.copysign", &type, 1, (em_val[]){em_fma(e, y, t, value), x}, 2);
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
    const float(*table)[PIECES] = by_tanh ? tanh_tail_pieces : tail_pieces;
    em_val all = LLVMConstAllOnes(e->i16), zero = em_zero(LLVMTypeOf(x));
    /* the smaller magnitude, without sign: the end for NaN, which max(0, x) keeps */
    em_val bound[] = {x, em_like(e, x, 7.75), em_i32(e, 2 | 2 << 2), zero, all, em_i32(e, 4)};
    em_val a = em_intrinsic(e, "llvm.x86.avx512.mask.range.ps.512", NULL, 0, bound, 6);
    em_val scaled = em_fma(e, a, em_like(e, x, 4), em_like(e, x, 0x1.8p23));
    em_val index = em_bitcast(e, scaled, em_vec(e->i32, 16)); /* the low bits: the nearest piece */
    /* what is left of a above or below the nearest multiple of 2^-2 */
    em_val rest[] = {a, em_i32(e, 2 << 4), zero, all, em_i32(e, 4)};
    em_val t = em_intrinsic(e, "llvm.x86.avx512.mask.reduce.ps.512", NULL, 0, rest, 5);
    em_val q = look_up(e, table[TERMS], index);
    for (int i = TERMS - 1; i >= 0; i--) q = em_fma(e, q, t, look_up(e, table[i], index));
    return em_fma(e, em_neg(e, a), q, em_max(e, zero, x));
}
