import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system without permissions. It sets them on each file and folder that it creates, by starting
 * chmod: some fifty processes for a small export, a fifth of its processor time.
 */
public final class PlainLocalFileSystem extends LocalFileSystem {
    public PlainLocalFileSystem() {
        super(
                new RawLocalFileSystem() {
                    @Override
                    public void setPermission(Path path, FsPermission permission) {}
                });
    }
}
