/* Five all-reduces, three messages from rank 0 to rank 1, and a barrier, by two processes of Open MPI. */
#include <mpi.h>

int main(int count, char **arguments) {
    MPI_Init(&count, &arguments);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double own = rank, other;
    for (int i = 0; i < 5; i++)
        MPI_Allreduce(&own, &other, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) {
        if (rank == 0)
            MPI_Send(&own, 1, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD);
        else
            MPI_Recv(&other, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
