-- What is outermost of a part of a call tree.
-- @macro outermost(node, last_node)  whether no row before this one, in pre-order of a call tree, holds it.
-- As a window, so that it may stand behind QUALIFY: of the rows that are left, those that lie in no other of them.
CREATE MACRO outermost(node, last_node) AS
    coalesce(node > max(last_node) OVER (ORDER BY node ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true);
