/* Fixed-point factors of the JPEG decoder's kernels. */
#ifndef NP_JPEG_CONSTS_H
#define NP_JPEG_CONSTS_H

#define IDCT_BITS   13 /* fraction bits of the factors */
#define IDCT_SHIFT1 11 /* columns; two fraction bits stay */
#define IDCT_SHIFT2 18 /* rows */
/* Up to here a coefficient of the first row, scaled by 4, fits 16 bits. */
#define IDCT_LIMIT 8191

#define FIXED(x) ((int)((x) * (1 << IDCT_BITS) + 0.5))
#define F_0_298  FIXED(0.298631336)
#define F_0_390  FIXED(0.390180644)
#define F_0_541  FIXED(0.541196100)
#define F_0_765  FIXED(0.765366865)
#define F_0_899  FIXED(0.899976223)
#define F_1_175  FIXED(1.175875602)
#define F_1_501  FIXED(1.501321110)
#define F_1_847  FIXED(1.847759065)
#define F_1_961  FIXED(1.961570560)
#define F_2_053  FIXED(2.053119869)
#define F_2_562  FIXED(2.562915447)
#define F_3_072  FIXED(3.072711026)

/* Of 65536: 1.402 - 1; -0.34414; 1 - 0.71414; half of 1.772 - 2. */
#define RGB_RED      26345
#define RGB_GREEN_CB (-22554)
#define RGB_GREEN_CR 18734
#define RGB_BLUE     (-7471)

#endif
