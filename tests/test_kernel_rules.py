"""Kernel names: families, algorithms, collectives and short names, on names from Kepler to Hopper."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import lines_run

from schemas.kernel_rules import (
    ALGORITHMS,
    COLLECTIVES,
    KernelClass,
    KernelRule,
    classify,
    families,
    matching_rule,
    read_rules,
    rules,
)

_ITERATOR = "at::TensorIteratorBase&"
_ANON = "at::native::(anonymous namespace)::"

# Name as the profiler wrote it, X, Y or K in place of long argument lists: family, algorithm, collective, short name.
NAMES = {
    # --- communication: NCCL from 2019 on, rccl, vLLM, DeepEP, torch symmetric memory
    "ncclBroadcastKernel_copy_i8": ("communication", None, "broadcast", "ncclBroadcastKernel_copy_i8"),
    "ncclReduceKernel_sum_f32": ("communication", None, "reduce", "ncclReduceKernel_sum_f32"),
    "ncclBroadcastRingLLKernel_copy_i8(ncclColl)": (
        "communication", None, "broadcast", "ncclBroadcastRingLLKernel_copy_i8"),
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": (
        "communication", None, "all_reduce", "ncclAllReduceRingLLKernel_sum_f32"),
    "ncclReduceRingLLKernel_sum_f32(ncclColl)": ("communication", None, "reduce", "ncclReduceRingLLKernel_sum_f32"),
    "ncclAllGatherRingLLKernel_copy_i8(ncclColl)": (
        "communication", None, "all_gather", "ncclAllGatherRingLLKernel_copy_i8"),
    "ncclReduceScatterRingLLKernel_sum_f16(ncclColl)": (
        "communication", None, "reduce_scatter", "ncclReduceScatterRingLLKernel_sum_f16"),
    "ncclSendRecvKernel_copy_i8(ncclColl)": ("communication", None, "send_recv", "ncclSendRecvKernel_copy_i8"),
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": (
        "communication", None, "all_reduce", "ncclKernel_AllReduce_RING_LL_Sum_float"),
    "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": (
        "communication", None, "broadcast", "ncclKernel_Broadcast_RING_LL_Sum_int8_t"),
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": (
        "communication", None, "all_gather", "ncclKernel_AllGather_RING_LL_Sum_int8_t"),
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)": (
        "communication", None, "send_recv", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"),
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "communication", None, "reduce_scatter", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"),
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "communication", None, "broadcast", "ncclDevKernel_Broadcast_RING_LL"),
    "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "communication", None, "reduce", "ncclDevKernel_Reduce_Sum_f32_RING_LL"),
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)": (
        "communication", None, "all_reduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "communication", None, "all_gather", "ncclDevKernel_AllGather_RING_LL"),
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": (
        "communication", None, "send_recv", "ncclDevKernel_SendRecv"),
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": (
        "communication", None, "other", "ncclDevKernel_Generic"),
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>) [clone .kd]": (
        "communication", None, "other", "ncclDevKernel_Generic_1"),
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)": (
        "communication", None, "all_reduce", "cross_device_reduce_1stage"),
    "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(aiter::RankData*, aiter::RankSignals, int)": (
        "communication", None, "reduce_scatter", "reduce_scatter_cross_device_store"),
    "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataENS_11RankSignalsEPNS_6SignalEii": (
        "communication", None, "reduce_scatter", "reduce_scatter_cross_device_store"),
    "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8, false>(aiter::RankData*, aiter::RankSignals)": (
        "communication", None, "all_reduce", "cross_device_reduce_2stage"),
    "void aiter::allgather_vec<__hip_bfloat16, 8>(aiter::RankData*, aiter::RankSignals)": (
        "communication", None, "all_gather", "allgather_vec"),
    "void mori::moe::EpCombineInterNodeV1Kernel<hip_bfloat16>(mori::moe::EpDispatchCombineArgs<hip_bfloat16>)": (
        "communication", None, "all_to_all", "EpCombineInterNodeV1Kernel"),
    "EpDispatchIntraNodeKernel_bf16": ("communication", None, "all_to_all", "EpDispatchIntraNodeKernel_bf16"),
    "void a2a_kernels::a2a_combine_send_kernel<16ul, 4ul>(unsigned long, unsigned long)": (
        "communication", None, "all_to_all", "a2a_combine_send_kernel"),
    "void (anonymous namespace)::combineKernel<10u, float, true>(float*, unsigned long)": (
        "communication", None, "all_to_all", "combineKernel"),
    "void deep_ep::intranode::dispatch<(int)8, (int)768, (int)8192>(int4 *, float *)": (
        "communication", None, "all_to_all", "intranode::dispatch"),
    "void deep_ep::intranode::combine<__nv_bfloat16, (int)8, (int)768, (int)4096>(T1 *, float *)": (
        "communication", None, "all_to_all", "intranode::combine"),
    "void c10d::symmetric_memory::(anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)":
        ("communication", None, "all_reduce", "multimem_all_reduce_kernel"),
    # --- convolution, Kepler and Pascal
    "winograd3x3Kernel": ("convolution", "winograd", None, "winograd3x3Kernel"),
    "void cudnn::winograd::winograd3x3Kernel<float, float, int=4, int=1, int=8, bool=0>(cudnn::maxwell::winograd::K)": (
        "convolution", "winograd", None, "winograd3x3Kernel"),
    "void cudnn::winograd::generateWinogradTilesKernel<0, float, float>(cudnn::winograd::GenerateWinogradTiles)": (
        "convolution", "winograd", None, "generateWinogradTilesKernel"),
    "maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt": (
        "convolution", "winograd", None, "maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt"),
    "maxwell_scudnn_winograd_128x128_ldg1_ldg4_mobile_relu_tile148t_nt_v1": (
        "convolution", "winograd", None, "maxwell_scudnn_winograd_128x128_ldg1_ldg4_mobile_relu_tile148t_nt_v1"),
    "void cudnn::detail::implicit_convolve_sgemm<float, float, int=1024, int=5, int=5, int=3, bool=1>(int, int)": (
        "convolution", "implicit_gemm", None, "implicit_convolve_sgemm"),
    "void cudnn::detail::explicit_convolve_sgemm<float, int, int=512, int=6, int=8, int=3, bool=1>(int, int)": (
        "convolution", None, None, "explicit_convolve_sgemm"),
    "cudnn_convolve_sgemm_sm35_ldg_nn_64x16x64x16x16": (
        "convolution", "precomputed_gemm", None, "cudnn_convolve_sgemm_sm35_ldg_nn_64x16x64x16x16"),
    "cudnn_convolve_sgemm_sm35_ldg_nn_32x16x64x8x16": (
        "convolution", "precomputed_gemm", None, "cudnn_convolve_sgemm_sm35_ldg_nn_32x16x64x8x16"),
    "void cudnn::detail::precomputed_convolve_sgemm<float, int=1024, int=5, int=5, int=4, int=3, int=3, bool=0>(int)": (
        "convolution", "precomputed_gemm", None, "precomputed_convolve_sgemm"),
    "maxwell_scudnn_128x64_relu_interior_nn": (
        "convolution", "precomputed_gemm", None, "maxwell_scudnn_128x64_relu_interior_nn"),
    "maxwell_scudnn_128x128_stridedB_splitK_interior_nn": (
        "convolution", "precomputed_gemm", None, "maxwell_scudnn_128x128_stridedB_splitK_interior_nn"),
    "cudnn::maxwell::gemm::computeOffsetsKernel(cudnn::maxwell::gemm::ComputeOffsetsParams)": (
        "convolution", "precomputed_gemm", None, "computeOffsetsKernel"),
    "void cudnn::detail::wgrad_alg0_engine<float, int=128, int=6, int=8, int=3, int=3, int=5, bool=1, int=512>(int)": (
        "convolution", "implicit_gemm", None, "wgrad_alg0_engine"),
    "void cudnn::detail::dgrad2d_alg1_1<float, int=0, int=6, int=7, int=5, int=4, int=5, bool=1, bool=1>(int, int)": (
        "convolution", "implicit_gemm", None, "dgrad2d_alg1_1"),
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*, int)": (
        "convolution", "implicit_gemm", None, "dgrad_engine"),
    "void fft2d_r2c_32x32<float, false, 0u, false>(float2*, float const*, int, int, cudnn::reduced_divisor, bool)": (
        "convolution", "fft", None, "fft2d_r2c_32x32"),
    "void fft2d_c2r_16x16<float, false>(float*, float2*, int, int)": ("convolution", "fft", None, "fft2d_c2r_16x16"),
    "void fft1d_r2c_32<float, float, float2, bool=0, bool=0>(float2*, float const*, int, int3, int3, int2, int2)": (
        "convolution", "fft", None, "fft1d_r2c_32"),
    "void flip_filter<float, float>(float*, float const*, int, int, int, int)": (
        "convolution", "fft", None, "flip_filter"),
    "compute_gemm_pointers(float2**, float2 const*, int, float2 const*, int, float2 const*, int, int)": (
        "convolution", "fft", None, "compute_gemm_pointers"),
    "cudnn_maxwell_gcgemm_64x64_tn_batched": ("convolution", "fft", None, "cudnn_maxwell_gcgemm_64x64_tn_batched"),
    "void im2col_kernel<float>(int, float const *, int, int, int, int)": ("convolution", None, None, "im2col_kernel"),
    "void spatialDepthwiseConvolutionUpdateOutput<float, float, unsigned int, int=3>(THCDeviceTensor<float, int=4>)": (
        "convolution", "depthwise", None, "spatialDepthwiseConvolutionUpdateOutput"),
    # --- convolution, Volta to Hopper
    "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1": (
        "convolution", "winograd", None, "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"),
    "_5x_cudnn_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1": (
        "convolution", "winograd", None, "_5x_cudnn_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"),
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(cudnn::winograd_nonfused::WinogradDataP)": (
        "convolution", "winograd", None, "winogradForwardData4x4"),
    "void cudnn::winograd_nonfused::winogradForwardOutput9x9_5x5<float, float>(cudnn::winograd_nonfused::P)": (
        "convolution", "winograd", None, "winogradForwardOutput9x9_5x5"),
    "void cudnn::winograd_nonfused::winogradWgradDelta4x4<float, float>(cudnn::winograd_nonfused::WinogradDelta)": (
        "convolution", "winograd", None, "winogradWgradDelta4x4"),
    "volta_s884cudnn_fp16_128x128_ldg8_relu_exp_interior_nhwc_tn_v1": (
        "convolution", "precomputed_gemm", None, "volta_s884cudnn_fp16_128x128_ldg8_relu_exp_interior_nhwc_tn_v1"),
    "cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1": (
        "convolution", "precomputed_gemm", None, "cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1"),
    "cask_cudnn_train::computeWgradSplitKOffsetsKernel(cask_cudnn_train::ComputeSplitKOffsetsParams)": (
        "convolution", "precomputed_gemm", None, "computeWgradSplitKOffsetsKernel"),
    "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4": (
        "convolution", "implicit_gemm", None,
        "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4"),
    "sm90_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64": (
        "convolution", "implicit_gemm", None,
        "sm90_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64"),
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc_align4>(X::Params)": (
        "convolution", "implicit_gemm", None,
        "Kernel[cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc_align4]"),
    "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemm": (
        "convolution", "implicit_gemm", None, "Kernel"),
    "void xmma_new::gemm::kernel<xmma_new::implicit_gemm::fprop::Kernel_traits<xmma_new::Ampere> >(int)": (
        "convolution", "implicit_gemm", None, "kernel[Kernel_traits]"),
    "cudnn_generated_fort_native_sm80_convFwd_pointwise_pointwise_pointwise": (
        "convolution", "implicit_gemm", None, "cudnn_generated_fort_native_sm80_convFwd_pointwise_pointwise_pointwise"),
    "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, 0, int, float, float>(cudnnTensorStruct)": (
        "convolution", "direct", None, "conv2d_grouped_direct_kernel"),
    "void wgrad2d_grouped_direct_kernel<float, float, float, (cudnnTensorFormat_t)0>(cudnnTensorStruct)": (
        "convolution", "direct", None, "wgrad2d_grouped_direct_kernel"),
    "void cudnn::cnn::dgrad2d_c1_k1_nhwc_kernel_specialized_window<__half, float, __half, 3, 1>(cudnnTensorStruct)": (
        "convolution", "depthwise", None, "dgrad2d_c1_k1_nhwc_kernel_specialized_window"),
    f"void {_ANON}conv_depthwise2d_backward_kernel<3, 1, float, int>(at::GenericPackedTensorAccessor<float, 4ul>)": (
        "convolution", "depthwise", None, "conv_depthwise2d_backward_kernel"),
    f"void {_ANON}conv_depthwise2d_grad_weight_kernel<float, unsigned int>(at::GenericPackedTensorAccessor<float>)": (
        "convolution", "depthwise", None, "conv_depthwise2d_grad_weight_kernel"),
    "ampere_gcgemm_64x64_nt": ("convolution", "fft", None, "ampere_gcgemm_64x64_nt"),
    "miopenSp3AsmConv_v21_1_2_gfx9_fp32_f3x2_stride1": (
        "convolution", "winograd", None, "miopenSp3AsmConv_v21_1_2_gfx9_fp32_f3x2_stride1"),
    "igemm_fwd_gtcx_nhwc_fp16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2.kd": (
        "convolution", "implicit_gemm", None, "igemm_fwd_gtcx_nhwc_fp16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2"),
    # --- gemm
    "sgemm_32x32x32_NN": ("gemm", None, None, "sgemm_32x32x32_NN"),
    "maxwell_sgemm_128x64_tn": ("gemm", None, None, "maxwell_sgemm_128x64_tn"),
    "volta_sgemm_32x32_sliced1x4_nn": ("gemm", None, None, "volta_sgemm_32x32_sliced1x4_nn"),
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn": (
        "gemm", None, None, "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn"),
    "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn": (
        "gemm", None, None, "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn"),
    "ampere_sgemm_128x32_nn": ("gemm", None, None, "ampere_sgemm_128x32_nn"),
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": (
        "gemm", None, None, "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"),
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4": (
        "gemm", None, None,
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4"),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel": (
        "gemm", None, None,
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"),
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(cutlass_80_simt_sgemm::Params)": (
        "gemm", None, None, "Kernel2[cutlass_80_simt_sgemm_128x64_8x5_nn_align1]"),
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int> > >(int)": (
        "gemm", None, None, "device_kernel[GemmUniversal]"),
    "nvjet_tst_128x128_64x6_2x1_v_bz_splitK_NTT": ("gemm", None, None, "nvjet_tst_128x128_64x6_2x1_v_bz_splitK_NTT"),
    "nvjet_hsh_192x128_64x4_1x2_h_bz_coopA_TNN": ("gemm", None, None, "nvjet_hsh_192x128_64x4_1x2_h_bz_coopA_TNN"),
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false, cublasGemvParams<X> >(Y)":
        ("gemm", None, None, "gemv2T_kernel_val"),
    "void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, cublasGemvParams<X> >(cublasGemvParams<X>)": (
        "gemm", None, None, "gemvNSP_kernel"),
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, 7, cublasGemvParams<float> >(X)": (
        "gemm", None, None, "gemvx::kernel"),
    "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, cublasGemvTensor<float> > >(X)": (
        "gemm", None, None, "dot_kernel"),
    "void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float> >(float const*, float, X, int)": (
        "gemm", None, None, "reduce_1Block_kernel"),
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, true, false>(cublasLt::P)": (
        "gemm", None, None, "splitKreduce_kernel"),
    "void cublasLt::epilogue::impl::globalKernel<8, 32, float, float, float, true, true, 1>(int, int, long, float*)": (
        "gemm", None, None, "impl::globalKernel"),
    "Cijk_Ailk_Bljk_SB_MT128x128x16_SN_1LDSB0_APM1_ABV0": (
        "gemm", None, None, "Cijk_Ailk_Bljk_SB_MT128x128x16_SN_1LDSB0_APM1_ABV0"),
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 1u, 128u, 128u, 128u>(float*, int*, unsigned int)": (
        "gemm", None, None, "sm90_fp8_gemm_1d2d_impl"),
    "void marlin::Marlin<256, 4, 16, 4, 4, 8>(int4 const*, int4 const*, int4*, int4 const*, int, int)": (
        "gemm", None, None, "Marlin"),
    # --- attention
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, cutlass::half_t> >(X)": (
        "attention", None, None, "flash_fwd_kernel"),
    "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128>, false>(Flash_params)": (
        "attention", None, None, "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel"),
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Mainloop<2> > > >(X)": (
        "attention", None, None, "device_kernel[FlashAttnFwdSm90]"),
    "fmha_cutlassF_f16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)": (
        "attention", None, None, "fmha_cutlassF_f16_aligned_64x128_rf_sm80"),
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x4x1_cga1x1x1": (
        "attention", None, None,
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x4x1_cga1x1x1"),
    "void vllm::paged_attention_v2_kernel<__half, __half, 128, 16, 128, 512>(float*, float*, __half*)": (
        "attention", None, None, "paged_attention_v2_kernel"),
    "triton_tem_fused_flex_attention_0": ("attention", None, None, "triton_tem_fused_flex_attention_0"),
    # --- normalization
    "void cudnn::detail::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct, float const*)": (
        "normalization", None, None, "bn_fw_tr_1C11_kernel_NCHW"),
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float, float, float)": (
        "normalization", None, None, "bn_bw_1C11_kernel_new"),
    "void cudnn::batchnorm_bwtr_nhwc_semiPersist<__half, 64>(int)": (
        "normalization", None, None, "batchnorm_bwtr_nhwc_semiPersist"),
    "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float, int>(X)": (
        "normalization", None, None, "batch_norm_collect_statistics_kernel"),
    "void at::native::batch_norm_transform_input_kernel<float, float, float, true, int>(X)": (
        "normalization", None, None, "batch_norm_transform_input_kernel"),
    f"void {_ANON}vectorized_layer_norm_kernel<float, float>(int, float, float const*, float const*)": (
        "normalization", None, None, "vectorized_layer_norm_kernel"),
    f"void {_ANON}layer_norm_grad_input_kernel<float, float>(float const*, float const*, int)": (
        "normalization", None, None, "layer_norm_grad_input_kernel"),
    f"void {_ANON}GammaBetaBackwardCUDAKernel_32x32<float, float>(long, long, float const*)": (
        "normalization", None, None, "GammaBetaBackwardCUDAKernel_32x32"),
    f"void {_ANON}RowwiseMomentsCUDAKernel<float>(long, float, float const*, float*, float*)": (
        "normalization", None, None, "RowwiseMomentsCUDAKernel"),
    # --- pooling
    "void MaxPoolForward<float, float>(int, float const *, int, int, int, int, int, int, int, float*, long*)": (
        "pooling", None, None, "MaxPoolForward"),
    "void MaxPoolBackward<float, float>(int, float const *, long const *, int, int, int, int, int, int)": (
        "pooling", None, None, "MaxPoolBackward"),
    f"void {_ANON}max_pool_backward_nchw<float, float>(float const*, long const*, int, long, float*)": (
        "pooling", None, None, "max_pool_backward_nchw"),
    f"void {_ANON}max_pool_backward_nhwc<float, float>(float const*, long const*, int, long, float*)": (
        "pooling", None, None, "max_pool_backward_nhwc"),
    f"void {_ANON}atomic_adaptive_average_gradinput<float>(float*, float const*, int, int, int, int)": (
        "pooling", None, None, "atomic_adaptive_average_gradinput"),
    f"void {_ANON}adaptive_average_pool<float>(float const*, float*, int, int, int, int, long, long, long)": (
        "pooling", None, None, "adaptive_average_pool"),
    "void at::native::avg_pool2d_out_cuda_frame<float, float>(int, float const*, long, long, long, int)": (
        "pooling", None, None, "avg_pool2d_out_cuda_frame"),
    "void cudnn::detail::pooling_fw_4d_kernel<float, float, cudnn::detail::maxpooling_func<float, (X)0>, 0>(Y)": (
        "pooling", None, None, "pooling_fw_4d_kernel"),
    # --- activation
    f"void at::native::vectorized_elementwise_kernel<4, {_ANON}launch_clamp_scalar({_ITERATOR}, c10::Scalar)::"
    "{lambda()#1}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>>(X)":
        ("activation", None, None, "vectorized_elementwise_kernel[launch_clamp_scalar]"),
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
    f"{_ANON}threshold_kernel_impl<float>({_ITERATOR}, float, float)::{{lambda(float, float)#1}}>, X>(Y)": (
        "activation", None, None, "vectorized_elementwise_kernel[threshold_kernel_impl]"),
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::<unnamed>::launch_clamp_scalar("
    "at::TensorIteratorBase &, c10::Scalar)::[lambda() (instance 1)]::operator ()() const::[lambda(float)], X>(T2)": (
        "activation", None, None, "vectorized_elementwise_kernel[launch_clamp_scalar]"),
    f"void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::sigmoid_backward_kernel_cuda("
    f"{_ITERATOR})::{{lambda()#2}}::operator()() const::{{lambda(float, float)#1}}>({_ITERATOR})::{{lambda(int)#1}}>()":
        ("activation", None, None, "elementwise_kernel[sigmoid_backward_kernel_cuda]"),
    "void kernelPointwiseApply2<ThresholdUpdateOutput<float>, float, float, unsigned int, int=-2, int=-2>(OffsetInfo)":
        ("activation", None, None, "kernelPointwiseApply2[ThresholdUpdateOutput]"),
    "triton_poi_fused_convolution_relu_0": ("activation", None, None, "triton_poi_fused_convolution_relu_0"),
    # --- elementwise
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)": (
        "elementwise", None, None, "vectorized_elementwise_kernel[CUDAFunctor_add]"),
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1>>(X)":
        ("elementwise", None, None, "vectorized_elementwise_kernel[FillFunctor]"),
    "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 2> >(int)": (
        "elementwise", None, None, "vectorized_elementwise_kernel[MulFunctor]"),
    "void kernelPointwiseApply1<TensorMulConstantOp<float>, float, unsigned int, int=1>(OffsetInfo<float>, float)": (
        "elementwise", None, None, "kernelPointwiseApply1[TensorMulConstantOp]"),
    "_ZN2at6native18elementwise_kernelILi512ELi1EZNS0_15gpu_kernel_impIZNS0_15add_kernel_cuda": (
        "elementwise", None, None, "elementwise_kernel"),
    "void op_tensor_kernel<int=2, float, float, float, int=32, int=1, int=4, int=2, cudnnOpTensorOp_t=2>(X)": (
        "elementwise", None, None, "op_tensor_kernel"),
    "void at::native::vectorized_elementwise_kernel<4, at...": (
        "elementwise", None, None, "vectorized_elementwise_kernel"),
    # --- reduction
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, X, 4>>(Y)": (
        "reduction", None, None, "reduce_kernel[MeanOps]"),
    "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::"
    "sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, X, 4> >(Y)": (
        "reduction", None, None, "reduce_kernel[sum_functor]"),
    "void cub::DeviceReduceSingleTileKernel<cub::DeviceReducePolicy<float, int, cub::Sum>, float*, float*>(float*)": (
        "reduction", None, None, "DeviceReduceSingleTileKernel"),
    "void cub::DeviceScanKernel<cub::AgentScanPolicy<128, 15, int>, int*, int*>(int*, int*)": (
        "reduction", None, None, "DeviceScanKernel"),
    "triton_red_fused_mean_0": ("reduction", None, None, "triton_red_fused_mean_0"),
    # --- softmax and losses
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*, float const*)": (
        "softmax_loss", None, None, "softmax_warp_forward"),
    f"void {_ANON}cunn_SoftMaxForward<4, float, float, float, {_ANON}LogSoftMaxForwardEpilogue>(float*)": (
        "softmax_loss", None, None, "cunn_SoftMaxForward"),
    "void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(float*, float*, float*, long*, float*, int)": (
        "softmax_loss", None, None, "cunn_ClassNLLCriterion_updateOutput_kernel"),
    f"void {_ANON}nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*, float*, float const*)": (
        "softmax_loss", None, None, "nll_loss_forward_reduce_cuda_kernel_2d"),
    "triton_per_fused__softmax_3": ("softmax_loss", None, None, "triton_per_fused__softmax_3"),
    # --- optimizer
    f"void {_ANON}multi_tensor_apply_kernel<{_ANON}FusedOptimizerTensorListMetadata<3>, "
    f"{_ANON}FusedSgdMathFunctor<float, 3>, double, double>(X)": (
        "optimizer", None, None, "multi_tensor_apply_kernel[FusedSgdMathFunctor]"),
    f"void {_ANON}multi_tensor_apply_kernel<{_ANON}FusedOptimizerTensorListMetadata<4>, "
    f"{_ANON}FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)0, false>, float const*>(X)": (
        "optimizer", None, None, "multi_tensor_apply_kernel[FusedAdamMathFunctor]"),
    f"void {_ANON}multi_tensor_apply_kernel<{_ANON}TensorListMetadata<1>, {_ANON}BinaryOpScalarFunctor<float, 1, 1, 0>,"
    " std::multiplies<float>, float>(X)": (
        "optimizer", None, None, "multi_tensor_apply_kernel[BinaryOpScalarFunctor:multiplies]"),
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float, adamMode_t, float>(X)": (
        "optimizer", None, None, "multi_tensor_apply_kernel[AdamFunctor]"),
    # --- embedding
    f"void {_ANON}embedding_backward_feature_kernel<float, float, long>(long const*, float const*, float*, int)": (
        "embedding", None, None, "embedding_backward_feature_kernel"),
    "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, false, long, 1ul, 16ul>(X)": (
        "embedding", None, None, "split_embedding_codegen_forward_unweighted_kernel"),
    f"void {_ANON}compute_grad_weight<float, long>(long const*, float const*, long const*)": (
        "embedding", None, None, "compute_grad_weight"),
    # --- copies
    f"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda({_ITERATOR})::{{lambda()#2}}::"
    "operator()() const::{lambda(long)#1}, X, at::native::memory::LoadWithCast<1> >(Y)": (
        "copy_layout", None, None, "unrolled_elementwise_kernel[direct_copy_kernel_cuda]"),
    f"void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda({_ITERATOR})::"
    "{lambda(float)#1}, std::array<char*, 2ul> >(int)": (
        "copy_layout", None, None, "vectorized_elementwise_kernel[bfloat16_copy_kernel_cuda]"),
    f"void {_ANON}CatArrayBatchedCopy<float, unsigned int, 1, 128, 1>(float*)": (
        "copy_layout", None, None, "CatArrayBatchedCopy"),
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)0>(X, float const*)": (
        "copy_layout", None, None, "nchwToNhwcKernel"),
    "void cudnn::detail::cubeTransposeDeviceGeneric_kernel<float, float, float, int=8, int=8, int=8>(int, int)": (
        "copy_layout", None, None, "cubeTransposeDeviceGeneric_kernel"),
    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<"
    f"at::native::OpaqueType<8> >({_ITERATOR})::{{lambda(char*, char*, long)#1}}>({_ITERATOR})::{{lambda(int)#1}}>()": (
        "copy_layout", None, None, "index_elementwise_kernel[index_kernel_impl]"),
    f"void {_ANON}indexSelectLargeIndex<float, int, unsigned int, 1, 1, -2, true>(X)": (
        "copy_layout", None, None, "indexSelectLargeIndex"),
    # --- random, other
    f"void {_ANON}distribution_elementwise_grid_stride_kernel<float, 4, at::native::templates::cuda::"
    "uniform_and_transform<float, float, 4ul, at::CUDAGeneratorImpl*>(X)::{lambda()#1}>(Y)": (
        "random", None, None, "distribution_elementwise_grid_stride_kernel[uniform_and_transform]"),
    f"void {_ANON}fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(X)": (
        "random", None, None, "fused_dropout_kernel_vec"),
    "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, false>(X)": (
        "other", None, None, "DeviceRadixSortOnesweepKernel"),
    "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(X)": ("other", None, None, "gatherTopK"),
    "void fbgemm_gpu::_offsets_range_cuda_kernel<long>(long, long, long const*, long*)": (
        "other", None, None, "_offsets_range_cuda_kernel"),
    "triton__0d1d2d3d": ("other", None, None, "triton__0d1d2d3d"),
    # --- fused MoE and attention of AMD's aiter
    "aiter::fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x512": (
        "gemm", None, None, "fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x512"),
    "_ZN5aiter50fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x128E": (
        "gemm", None, None, "fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x128"),
    "_ZN5aiter42pa_bf16_pertokenFp8_gqa10_1tg_4w_mtp3_msk1E": (
        "attention", None, None, "pa_bf16_pertokenFp8_gqa10_1tg_4w_mtp3_msk1"),
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_": (
        "normalization", None, None, "add_rmsnorm_quant_kernel"),
    "_ZN5aiter42fp8gemm_bf16_blockscale_BpreShuffle_32x128E": (
        "gemm", None, None, "fp8gemm_bf16_blockscale_BpreShuffle_32x128"),
}  # fmt: skip

RULES = [(kind, rule) for kind, table in rules().items() for rule in table]
EXAMPLES = [(kind, rule, name) for kind, rule in RULES for name in rule.examples]


@pytest.mark.parametrize(("name", "expected"), NAMES.items(), ids=[name[:60] for name in NAMES])
def test_names_from_kepler_to_hopper(name: str, expected: tuple[str, str | None, str | None, str]) -> None:
    family, algorithm, collective, short_name = expected
    assert classify(name) == KernelClass(short_name, family, algorithm, collective)


def test_the_list_is_long_and_covers_every_value() -> None:
    assert len(NAMES) >= 120
    found, algorithms, collectives, _ = (set(column) for column in zip(*NAMES.values(), strict=True))
    assert found == set(families())
    assert algorithms - {None} == set(ALGORITHMS)
    assert collectives - {None} >= set(COLLECTIVES) - {"barrier"}


@pytest.mark.parametrize(("kind", "rule", "name"), EXAMPLES, ids=[f"{k}-{n[:50]}" for k, _, n in EXAMPLES])
def test_an_example_lands_on_its_own_table(kind: str, rule: KernelRule, name: str) -> None:
    assert matching_rule(kind, name) is rule
    assert getattr(classify(name), kind) == rule.value


@pytest.mark.parametrize(("kind", "rule"), RULES, ids=[f"{kind}-{rule.value}" for kind, rule in RULES])
def test_every_regex_has_an_example(kind: str, rule: KernelRule) -> None:
    words = [re.findall(r"[\w:]+", name) for name in rule.examples]
    unused = [m for m in rule.matches if not any(re.search(m, word) for name in words for word in name)]
    assert not unused, f"no example of this {kind} table matches {unused}"


@pytest.mark.parametrize(
    ("name", "short_name"),
    [
        ("", ""),
        ("   ", ""),
        ("plain", "plain"),
        ("void f(int)", "f"),
        ("void a::b<c::d<(e)1> >::f<g>(h) const", "f"),
        ("Functor::operator()(int) const", "Functor::operator()"),
        ("void ns::foo(int)::{lambda(float)#1}::operator()(float) const", "foo::operator()"),
        ("bool compare<&(operator<(int, int))>(int)", "compare"),
        ("void run<std::function<void (int)> >(std::function<void (int)>)", "run"),
        ("void __nv_static_51__38_tmpxft_0000_name__kernel(int)", "__nv_static_51__38_tmpxft_0000_name__kernel"),
        ("void (anonymous namespace)::(anonymous namespace)::k<<unnamed>::T>(int)", "k"),
        ("void broken<int, (", "broken"),
        ("void broken(int, float", "broken"),
        ("broken>>)", "broken"),
        ("<<<", "<<<"),
        ("void f<(a > b)>(int)", "f"),
        ("_Z3addPfS_i", "add"),
        ("_Zqq", "_Zqq"),
    ],
)
def test_short_names_of_unusual_spellings(name: str, short_name: str) -> None:
    assert classify(name).short_name == short_name


_PIECES = st.sampled_from(
    [
        "<",
        ">",
        "(",
        ")",
        "{",
        "}",
        "::",
        " ",
        "operator()",
        "->",
        "void ",
        "kernel",
        "Kernel",
        "_Z",
        "_ZN9",
        "at::native::",
    ]
)


@given(st.one_of(st.text(), st.lists(_PIECES | st.text(max_size=5)).map("".join)))
def test_any_text_has_a_family(name: str) -> None:
    found = classify(name)
    assert found.family in families()
    assert (found.algorithm is None) or (found.family == "convolution" and found.algorithm in ALGORITHMS)
    assert (found.collective in COLLECTIVES) if found.family == "communication" else found.collective is None
    assert bool(found.short_name) == bool(name.strip())


@pytest.mark.parametrize(
    "text",
    [
        "[[family]]\nfamily = 'Green tea'\nmatch = ['x']\n[[algorithm]]\n[[collective]]",
        "[[family]]\nfamily = 'gemm'\nmatch = ['(']\n[[algorithm]]\n[[collective]]",
        "[[family]]\nfamily = 'gemm'\nmatches = ['x']\n[[algorithm]]\n[[collective]]",
        "[[families]]",
        "not toml",
    ],
)
def test_invalid_rule_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "rules.toml").write_text(text)
    with pytest.raises((ValueError, re.error)):
        read_rules(tmp_path / "rules.toml")


def test_classification_cost_is_linear_in_the_name() -> None:
    """Ten times the length is ten times the work, and names of known identifiers try no rule again."""

    def names(count: int) -> list[str]:
        return [f"void at::native::reduce_kernel<{i}, my::Functor<{'float, ' * 35}int> >(int)" for i in range(count)]

    long, longer = (f"void f<{'float, ' * n}int>(int)" for n in (300, 3000))
    assert lines_run(lambda: classify(longer)) < 11 * lines_run(lambda: classify(long))
    first, *others = names(1000)
    classify(first)
    one = lines_run(lambda: classify(others[0]))
    assert lines_run(lambda: [classify(name) for name in others[1:]]) < 1.1 * one * len(others)
