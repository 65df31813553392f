package lancestat.relation;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import javassist.util.proxy.MethodHandler;
import javassist.util.proxy.ProxyFactory;
import javassist.util.proxy.ProxyObject;
import org.objenesis.ObjenesisStd;

/**
 * Makes objects of a generated subclass of another object's class, whose calls a handler receives.
 *
 * <p>Spark tells the capabilities of catalogs and tables by their interfaces, and sources recognise
 * their own by the class, so that what stands in for them has to be of both.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class StandIn {
  private StandIn() {}

  /** An object of the class of `inner`, with its fields, whose methods are all the handler's. */
  static Object of(Object inner, MethodHandler handler) {
    ProxyFactory factory = new ProxyFactory();
    factory.setSuperclass(inner.getClass());
    Object made = new ObjenesisStd().newInstance(factory.createClass());
    copyFields(inner, made);
    ((ProxyObject) made).setHandler(handler);
    return made;
  }

  /** The handler of an object that `of` made, null of any other. */
  static MethodHandler handler(Object object) {
    return object instanceof ProxyObject ? ((ProxyObject) object).getHandler() : null;
  }

  /** Calls a method of another object, and throws what that throws. */
  static Object call(Object inner, Method method, Object[] args) throws Throwable {
    try {
      method.setAccessible(true);
      return method.invoke(inner, args);
    } catch (InvocationTargetException error) {
      throw error.getCause();
    }
  }

  // For methods that no subclass can have in their place.
  private static void copyFields(Object from, Object to) {
    try {
      for (Class type = from.getClass(); type != null; type = type.getSuperclass()) {
        Field[] fields = type.getDeclaredFields();
        for (int i = 0; i < fields.length; i++) {
          if (!Modifier.isStatic(fields[i].getModifiers())) {
            fields[i].setAccessible(true);
            fields[i].set(to, fields[i].get(from));
          }
        }
      }
    } catch (IllegalAccessException error) {
      throw new IllegalStateException(error);
    }
  }
}
