"""Tables of every kind that nvprof prints, by hand, in its format."""

BANNER = "==7== NVPROF is profiling process 7, command: python main.py --arch vgg16 -b 32 --epochs 1 /data\n"

SUMMARY = """\
==7== Profiling result:
"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,us,us,us,
"GPU activities",50.000000,2.000000,4,500.000000,400.000000,600.000000,"ncclBroadcastKernel_copy_i8(ncclColl)"
"GPU activities",25.000000,1.000000,2,500.000000,500.000000,500.000000,"void winograd3x3Kernel<float, int=4>(float*)"
"GPU activities",25.000000,1.000000,1,1000.000000,1000.000000,1000.000000,"[CUDA memcpy HtoD]"
"API calls",75.000000,3.000000,3,1000.000000,1.000000,2000.000000,"cudaMalloc"
"API calls",25.000000,1.000000,1,1000.000000,1000.000000,1000.000000,"cuDeviceTotalMem"
"OpenACC (excl)",100.0,1.0,1,1.0,1.0,1.0,"acc_wait"
epoch 1, loss 2, done
==7== Generated result file
"""

GPU_TRACE = """\
==7== Profiling result:
"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread","Static SMem",\
"Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","Device","Context","Stream","Src Dev","Src Ctx","Dst Dev",\
"Dst Ctx","Name","Correlation_ID"
ms,us,,,,,,,,KB,B,MB,GB/s,,,,,,,,,,,
1.234567,1.504000,,,,,,,,,,0.500000,10.0,"Pageable","Device","Tesla K80 (1)","1","7",,,,,"[CUDA memcpy HtoD]",11
2.000001,0.000000,64,2,1,256,1,1,32,1.000000,16,,,,,"Tesla K80 (1)","1","7",,,,,"void k<int, 2>(float*) [12]",12
3.000000,2.000000,,,,,,,,,,0.001000,1.0,"Device",,"Tesla K80 (0)","1","7",,,,,"[CUDA memset]",13
4.000000,9.000000,,,,,,,,,,1.000000,1.0,"Device","Device","Tesla K80 (0)","1","7","Tesla K80 (0)","1",\
"Tesla K80 (1)","1","[CUDA memcpy PtoP]",14
5.000000,9.000000,,,,,,,,,,,,,,"Tesla K80 (0)","1","7",,,,,"[Unified Memory GPU page faults]",15
"""

API_TRACE = """\
==7== Profiling result:
"Start","Duration","Name","Correlation_ID"
s,us,,
0.000001,2.866000,"cuDeviceGetPCIBusId",1
1.500000,0.952000,"cudaLaunchKernel_v7000",2
"""

METRICS = """\
==7== Profiling result:
==7== Metric result:
"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"
"Tesla P40 (0)","void k(float*)",10,"flop_count_sp","Floating Point Operations(Single Precision)",100,300,200
"Tesla P40 (0)","void k(float*)",10,"flop_count_dp","Floating Point Operations(Double Precision)",0,0,0
"Tesla P40 (0)","void k(float*)",10,"flop_count_hp","Floating Point Operations(Half Precision)",0,0,0
"Tesla P40 (0)","void k(float*)",10,"flop_count_sp_add","Floating Point Operations(Single Precision Add)",7,7,7
"Tesla P40 (0)","void k(float*)",10,"dram_read_transactions","Device Memory Read Transactions",30,30,30
"Tesla P40 (0)","void k(float*)",10,"dram_write_transactions","Device Memory Write Transactions",20,20,20
"Tesla P40 (0)","void k(float*)",10,"sm_efficiency","Multiprocessor Activity",90.000000%,99.500000%,95.300000%
"Tesla P40 (0)","void k(float*)",10,"dram_read_throughput","Throughput",1.000000GB/s,3.000000GB/s,2.000000GB/s
"Tesla P40 (0)","void k(float*)",10,"tex_utilization","Texture Cache Utilization",Low (1),High (9),Mid (5)
"Tesla P40 (0)","void k(float*)",10,"inst_per_warp","Instructions per warp",<OVERFLOW>,<OVERFLOW>,<OVERFLOW>
==7== Event result:
"Device","Kernel","Invocations","Event Name","Min","Max","Avg","Total"
"Tesla P40 (1)","void k(float*)",4,"active_warps",1,3,2,8
"""
