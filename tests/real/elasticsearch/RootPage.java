import java.util.Collection;
import java.util.List;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.elasticsearch.Build;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.plugins.ActionPlugin;
import org.elasticsearch.plugins.Plugin;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;

/** What {@code GET /} answers, as far as clients read it: the module that does it is not published as a jar. */
public class RootPage extends Plugin implements ActionPlugin {
    private static final String PAGE = """
        {"name": "node", "cluster_name": "elasticsearch", "version": {"number": "%s"}, "tagline": "You Know, for Search"}
        """;

    @Override
    public Collection<RestHandler> getRestHandlers(
        RestHandlersServices services,
        Supplier<DiscoveryNodes> nodes,
        Predicate<NodeFeature> features
    ) {
        var response = PAGE.formatted(Build.current().version());
        services.restController().registerHandler(
            new RestHandler.Route(RestRequest.Method.GET, "/"),
            (request, channel, client) ->
                channel.sendResponse(new RestResponse(RestStatus.OK, "application/json", response))
        );
        return List.of();
    }
}
