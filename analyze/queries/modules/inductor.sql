-- Names of the Triton kernels of TorchInductor: triton_KIND_fused_OPERATORS_NUMBER.

-- @macro triton_kind(name)  what kind of kernel it is, by its name; NULL for others.
CREATE MACRO triton_kind(name) AS CASE regexp_extract(name, '^triton_([a-z]+)_', 1)
    WHEN 'poi' THEN 'pointwise' WHEN 'red' THEN 'reduction' WHEN 'per' THEN 'persistent reduction'
    WHEN 'spl' THEN 'split scan' WHEN 'for' THEN 'foreach' WHEN 'tem' THEN 'template'
    ELSE CASE WHEN starts_with(name, 'triton_') THEN 'triton' END
END;

-- @macro fused_ops(name)  the operators in the name (VARCHAR[]), in its order, which is that of the alphabet.
-- "_" joins the names, and occurs in names. So known names of several words are matched first, longer ones before
-- shorter ones; the rest is split into words.
CREATE MACRO fused_ops(name) AS regexp_extract_all(
    regexp_replace(regexp_extract(name, '^triton_[a-z]+_fused_(.*)$', 1), '_?\d+$', '') || '_',
    '(' || concat_ws('|',
        '_scaled_dot_product_flash_attention_for_cpu', '_scaled_dot_product_efficient_attention_backward',
        '_scaled_dot_product_flash_attention_backward', '_scaled_dot_product_cudnn_attention_backward',
        '_scaled_dot_product_efficient_attention', '_scaled_dot_product_flash_attention',
        '_scaled_dot_product_cudnn_attention', 'scaled_dot_product_attention',
        '_native_batch_norm_legit_no_training', '_native_batch_norm_legit_functional', '_native_batch_norm_legit',
        'native_batch_norm_backward', 'native_layer_norm_backward', 'native_group_norm_backward',
        'native_dropout_backward', 'native_batch_norm', 'native_layer_norm', 'native_group_norm', 'native_dropout',
        '_fused_rms_norm_backward', '_fused_rms_norm', 'max_pool2d_with_indices_backward', 'max_pool2d_with_indices',
        '_adaptive_avg_pool2d_backward', '_adaptive_avg_pool2d', 'adaptive_max_pool2d', 'avg_pool2d_backward',
        'avg_pool2d', '_log_softmax_backward_data', '_softmax_backward_data', '_log_softmax', '_softmax',
        'binary_cross_entropy_with_logits', 'nll_loss2d_backward', 'nll_loss2d_forward', 'nll_loss_backward',
        'nll_loss_forward', 'mse_loss_backward', 'mse_loss', 'embedding_dense_backward', 'convolution_backward',
        'upsample_nearest2d_backward', 'upsample_nearest2d', 'upsample_bilinear2d', 'constant_pad_nd',
        'gelu_backward', 'silu_backward', 'elu_backward', 'sigmoid_backward', 'tanh_backward', 'hardswish_backward',
        'hardsigmoid_backward', 'hardtanh_backward', 'leaky_relu_backward', 'leaky_relu', 'threshold_backward',
        'select_backward', 'slice_backward', 'slice_scatter', 'select_scatter', 'index_put', 'index_select',
        'scatter_add', 'scatter_reduce', 'masked_fill', 'masked_scatter', 'new_empty_strided', 'new_zeros', 'new_ones',
        'new_full', 'new_empty', 'zeros_like', 'ones_like', 'full_like', 'empty_like', 'rand_like', 'randn_like',
        'empty_strided', 'as_strided', 'view_as_complex', 'view_as_real', 'var_mean', 'clamp_min', 'clamp_max',
        'logical_and', 'logical_not', 'logical_or', 'bitwise_and', 'bitwise_not', 'bitwise_or', 'pixel_shuffle',
        'split_with_sizes', 'repeat_interleave', '_unsafe_view', '_unsafe_index_put', '_unsafe_index', '_to_copy',
        '_scaled_mm', '_grouped_mm', '_foreach_addcdiv', '_foreach_addcmul', '_foreach_add', '_foreach_mul',
        '_foreach_sqrt', '_foreach_lerp', '_fused_adamw', '_fused_adam', 'prims__convert_element_type',
        '[a-z0-9]+'
    ) || ')_', 1
);
